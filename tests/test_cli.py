"""The command line as a person meets it: real processes, exit codes, messages."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEADWAY = [sys.executable, "-m", "headway"]
SMALL = ["--set", "model.width=32", "--set", "model.layers=1", "--set", "model.heads=2", "--set", "task.vocab=300"]


def headway(*args: str | Path, cwd: Path, **kwargs: object) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*HEADWAY, *map(str, args)], cwd=cwd, capture_output=True, text=True, env=env, **kwargs)  # type: ignore[call-overload]


def test_help_is_quick_and_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv=['headway','--help']\n"
        "from headway.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules, 'a heavy import'\n"
    )
    took = []
    for _ in range(3):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        took.append(time.perf_counter() - began)
        assert done.returncode == 0, done.stderr
    assert "train" in done.stdout and "info" in done.stdout
    assert min(took) < 0.4, f"--help took {min(took):.2f} s"


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["train", "clasify"], "did you mean 'classify'"),
        (["train", "classify", "missing.csv"], "missing.csv: no such file"),
        (["train", "classify", "--set", "wamup=1"], "did you mean 'warmup'"),
        (["info", "./nothing"], "nothing"),
        (["run", "./nothing", "x"], "nothing"),
        (["train", "classify", "--resume", "--out", "nowhere"], "no run to go on with"),
    ],
)
def test_wrong_words_get_one_clear_line(args: list[str], says: str, tmp_path: Path) -> None:
    done = headway(*args, cwd=tmp_path)
    assert done.returncode == 2
    assert says in done.stderr and "Traceback" not in done.stderr
    assert done.stderr.startswith("error: ")


def test_a_person_trains_stops_resumes_evaluates_and_runs(tmp_path: Path) -> None:
    rows = [f"i {'love' if i % 2 else 'hate'} number {i}\t{'good' if i % 2 else 'bad'}" for i in range(300)]
    (tmp_path / "mine.tsv").write_text("\n".join(rows) + "\n")
    train = ["train", "classify", "mine.tsv", *SMALL, "--set", "eval_every=0", "--set", "log_every=1"]
    whole = headway(*train, "--steps", "40", "--out", "whole", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr

    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [*HEADWAY, *train, "--steps", "40", "--out", "cut"], cwd=tmp_path, env=env, stdout=subprocess.PIPE, text=True
    )
    log = tmp_path / "cut" / "training" / "metrics.jsonl"
    while not log.exists() or log.read_text().count("\n") < 3:
        assert process.poll() is None, "it ended before it could be stopped"
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "--resume" in output
    resumed = headway("train", "classify", "--resume", "--out", "cut", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "cut" / "model.safetensors").read_bytes() == (
        tmp_path / "whole" / "model.safetensors"
    ).read_bytes()

    again = headway(*train, "--steps", "40", "--out", "whole", cwd=tmp_path)
    assert again.returncode == 2 and "--resume" in again.stderr

    scored = headway("evaluate", "cut", "mine.tsv", "--json", cwd=tmp_path)
    assert scored.returncode == 0, scored.stderr
    assert json.loads(scored.stdout)["accuracy"] > 0.9
    ran = headway("run", "cut", "i love it", "i hate it", "--json", cwd=tmp_path)
    assert [json.loads(line)["answer"]["label"] for line in ran.stdout.splitlines()] == ["good", "bad"]
    piped = headway("run", "cut", cwd=tmp_path, input="i love it\n")
    assert json.loads(piped.stdout)["label"] == "good"
    told = headway("info", "cut", cwd=tmp_path)
    assert "classify" in told.stdout and "parameters" in told.stdout
    looked = headway("check", "classify", "mine.tsv", cwd=tmp_path)
    assert "good" in looked.stdout and "baseline" in looked.stdout
    planned = headway("train", "classify", "mine.tsv", "--dry-run", cwd=tmp_path)
    assert planned.returncode == 0 and '"task": "classify"' in planned.stdout and not (tmp_path / "runs").exists()
