"""Help in the order a user meets the commands, shell completion, and flags that are settings."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support.commands import headway

from headway.cli.app import GROUPS, app
from headway.cli.shell_completion import model_folders


def complete(words: str, cwd: Path) -> list[str]:
    position = str(len(words.split(" ")) - 1)
    variables = {"COMP_WORDS": words, "COMP_CWORD": position, "_HEADWAY_COMPLETE": "complete_bash"}
    code = (
        "import sys; sys.argv = ['headway']; from headway.cli import main\n"
        "try: main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=os.environ | variables, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_every_command_is_in_a_group_and_in_order(tmp_path: Path) -> None:
    known = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    listed = [name for names in GROUPS.values() for name in names]
    assert set(listed) == known and len(listed) == len(known)
    shown = headway("--help", cwd=tmp_path).stdout
    places = [shown.index(f"\n  {name} ") for name in listed]
    assert places == sorted(places) and "\nTrain:\n" in shown


def test_completion_of_tasks_and_models(tmp_path: Path) -> None:
    assert complete("headway train cl", tmp_path) == ["classify", "classify-image"]
    assert complete("headway ch", tmp_path) == ["check", "chat"]


def test_model_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("runs/one", "runs/two", "models/three", "models/.hidden"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
    (tmp_path / "runs/notes").mkdir()
    monkeypatch.chdir(tmp_path)
    assert model_folders("") == ["models/", "runs/", "runs/one", "runs/two"]
    assert model_folders("runs/") == ["runs/notes/", "runs/one", "runs/two"]
    assert model_folders("models/t") == ["models/three"]
    assert model_folders("nowhere/x") == []


def test_completion_script_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")  # there is no shell around the test
    shown = headway("--show-completion", "bash", cwd=tmp_path)
    assert shown.returncode == 0 and "headway_completion() {" in shown.stdout


def test_flags_are_settings(tmp_path: Path) -> None:
    flags = ["--lr", "0.002", "--batch", "7", "--patience", "2", "--device", "cpu", "--score", "macro_f1"]
    shown = headway(
        "train", "classify", "--dry-run", "--steps", "2", "--size", "tiny", "--threads", "1", *flags, cwd=tmp_path
    )
    assert shown.returncode == 0, shown.stderr
    plan = json.loads(shown.stdout[shown.stdout.index("\n{") :])
    wanted = {"lr": 0.002, "batch": 7, "patience": 2, "device": "cpu", "score": "macro_f1"}
    assert {name: plan["train"][name] for name in wanted} == wanted
    assert {f"train.{name}" for name in wanted} <= set(plan["given"])
    wrong = headway("train", "classify", "--dry-run", "--lr", "-1", cwd=tmp_path)
    assert wrong.returncode == 2 and "lr: -1" in wrong.stderr


def test_threads_are_set_before_the_command(tmp_path: Path) -> None:
    import torch

    before = torch.get_num_threads()
    try:
        headway("check", "classify", "--threads", "3", "--set", "wrong=1", cwd=tmp_path)  # ends before any work
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
