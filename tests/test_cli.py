"""The command line: processes, exit codes, messages."""

import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.commands import headway
from typer.testing import CliRunner

from headway.cli import app, main
from headway.errors import ConfigError
from headway.jobs.run_config import make_plan

HEADWAY = [sys.executable, "-m", "headway"]
SMALL = ["--set", "model.width=32", "--set", "model.layers=1", "--set", "model.heads=2", "--set", "task.vocab=300"]


def test_help_is_quick_and_needs_no_torch(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv=['headway','--help']\n"
        "from headway.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules, 'a heavy import'\n"
    )
    seconds = []  # of processor time: other work on the machine does not count
    for _ in range(3):
        before = os.times()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        after = os.times()
        seconds.append(sum(after[2:4]) - sum(before[2:4]))
        assert done.returncode == 0, done.stderr
    assert "train" in done.stdout and "info" in done.stdout
    assert min(seconds) < 0.4, f"--help took {min(seconds):.2f} s"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["train", "clasify"], "did you mean 'classify'"),
        (["train", "classify", "missing.csv"], "missing.csv: no such file"),
        (["train", "classify", "--set", "wamup=1"], "did you mean 'warmup'"),
        (["info", "./nothing"], "nothing"),
        (["run", "./nothing", "x"], "nothing"),
        (["train", "classify", "--resume", "--out", "nowhere"], "no run to resume"),
    ],
)
def test_mistakes_get_one_clear_line(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["headway", *args])
    with pytest.raises(SystemExit) as end:
        main()
    error = capsys.readouterr().err
    assert end.value.code == 2 and error.startswith("error: ") and message in error


def test_a_run_is_interrupted_resumed_evaluated_and_used(tmp_path: Path) -> None:
    """The interrupted run is a process of its own; the other commands need none."""
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
    resumed = headway(*train, "--steps", "40", "--resume", "--out", "cut", cwd=tmp_path)
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
    info = headway("info", "cut", cwd=tmp_path)
    assert "classify" in info.stdout and "parameters" in info.stdout
    report = headway("check", "classify", "mine.tsv", cwd=tmp_path)
    assert "good" in report.stdout and "baseline" in report.stdout
    dry = headway("train", "classify", "mine.tsv", "--dry-run", cwd=tmp_path)
    assert dry.returncode == 0 and '"task": "classify"' in dry.stdout and not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["classify", "mine.tsv", "--steps", "7"], r"data: None there, \['mine.tsv'\] given"),
        (["classify", "--steps", "7", "--seed", "0"], "train.seed: 3 there, 0 given"),
        (["classify", "--recipe", "classic"], "recipe: 'modern' there, 'classic' given"),
        (["classify", "--size", "base", "--set", "lr=1", "--set", "batch=3"], "and [0-9]+ more"),
        (["tag"], "task: 'classify' there, 'tag' given"),
    ],
)
def test_a_run_is_not_resumed_with_other_settings(args: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "training").mkdir()
    plan = make_plan("classify", steps=7, seed=3)
    (tmp_path / "training" / "plan.json").write_text(json.dumps(dataclasses.asdict(plan)))
    result = CliRunner().invoke(app, ["train", *args, "--resume", "--out", str(tmp_path)])
    assert isinstance(result.exception, ConfigError)
    assert re.search(message, str(result.exception)) and "leave the other options out" in str(result.exception)
