"""Commands that only look at run folders do not import torch, so that they start at once."""

import json
import subprocess
import sys
from pathlib import Path

OLD = Path(__file__).parents[1] / "folders" / "before_recut"
PROGRAM = """
import json, sys
from headway.cli import app

def run(*args):
    try:
        app(args)
    except SystemExit as end:
        assert not end.code, (args, end.code)
    print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))

folder, page = sys.argv[1:]
run("--help")
run("runs", folder)
run("compare-runs", f"{folder}/unfinished", f"{folder}/unfinished", "--out", page)
run("info", f"{folder}/classify")
"""


def test_listing_runs_does_not_import_torch(tmp_path: Path) -> None:
    page = tmp_path / "curves.html"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(OLD), str(page)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.splitlines()
    helped, runs, compared, info = (set(json.loads(line)) for line in shown if line.startswith("["))
    assert [modules & {"torch", "numpy"} for modules in (helped, runs, compared)] == [set(), set(), set()]
    assert "torch" in info  # control: a command that loads a model does
    assert page.is_file() and any("unfinished" in line and "stopped" in line for line in shown)
