"""How a run ends and what it leaves: nothing after an early error, its error after a later one, no states once it has
finished; `runs --prune`, and `train --quiet` and `--json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import headway as command

import headway
from headway import jobs
from headway.errors import ConfigError, TrainingError
from headway.files import PARTIAL
from headway.jobs.prune import prunable
from headway.jobs.runs import run_state, run_summary

SMALL: dict[str, Any] = {
    "model.width": 16, "model.layers": 1, "model.heads": 2, "batch": 8, "task.vocab": 60, "task.ngrams": 0,
    "task.convolutions": 0, "eval_every": 0,
}  # fmt: skip
OPTIONS = [part for key, value in SMALL.items() for part in ("--set", f"{key}={value}")]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "mine.tsv"
    path.write_text(
        "".join(f"i {'love' if n % 2 else 'hate'} it {n}\t{'good' if n % 2 else 'bad'}\n" for n in range(80))
    )
    return path


class FailAt:
    def __init__(self, step: int, error: type[Exception] = TrainingError) -> None:
        self.step, self.error = step, error

    def on_step(self, status: Any) -> None:
        if status.step == self.step:
            raise self.error("the first\nof two lines")


def train(data: Path, name: str, **settings: Any) -> jobs.Trained:
    callbacks = [FailAt(settings.pop("fails_at"))] if "fails_at" in settings else []
    out = data.parent / name
    return jobs.train("classify", data, out=out, steps=4, settings=SMALL | settings, callbacks=callbacks)


def test_an_error_before_the_first_state_leaves_nothing_behind(data: Path, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "notes.txt").write_text("mine")
    for name in ("new", "kept"):
        with pytest.raises(TrainingError):
            train(data, name, fails_at=1)
    assert not (tmp_path / "new").exists()
    assert [path.name for path in (tmp_path / "kept").rglob("*")] == ["notes.txt"]
    assert train(data, "kept").result.steps == 4  # the same command works


def test_the_same_of_a_table_in_memory(tmp_path: Path) -> None:
    rows = [{"text": f"i {'love' if n % 2 else 'hate'} it {n}", "label": n % 2} for n in range(80)]
    for error in (TrainingError, RuntimeError):
        with pytest.raises(error):
            jobs.train("classify", rows, out=tmp_path / "run", steps=4, settings=SMALL, callbacks=[FailAt(1, error)])
        assert not (tmp_path / "run").exists() if error is TrainingError else run_state(tmp_path / "run") == "failed"
    assert jobs.train("classify", rows, out=tmp_path / "run", steps=4, settings=SMALL).result.steps == 4


def test_a_later_error_is_shown_and_the_run_can_be_resumed(data: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        train(data, "run", fails_at=3, save_every=2)
    assert run_state(tmp_path / "run") == "failed" and "of two lines" in run_summary(tmp_path / "run").problem
    shown = command("runs", tmp_path, cwd=tmp_path)
    assert "failed" in shown.stdout and "the first" in shown.stderr
    with pytest.raises(ConfigError, match="holds an earlier run"):
        train(data, "run")
    assert run_state(tmp_path / "run") == "failed"
    assert jobs.resume(tmp_path / "run").result.steps == 4 and run_state(tmp_path / "run") == "finished"


def test_a_run_that_is_kept_to_be_replayed_does_not_block_the_next_try(data: Path, tmp_path: Path) -> None:
    with pytest.raises(TrainingError):
        train(data, "run", lr=1e30, matrix_lr=1e30, clip=0.0, warmup=0.0, skip_spikes=0)
    assert list((tmp_path / "run" / "training").glob("autopsy-*")) and run_state(tmp_path / "run") == "failed"
    assert train(data, "run").result.steps == 4 and run_state(tmp_path / "run") == "finished"


def test_prune_removes_what_only_resuming_needs(data: Path, tmp_path: Path) -> None:
    done = train(data, "runs/done", keep_states=True, save_every=1).folder
    with pytest.raises(TrainingError):
        train(data, "runs/failed", fails_at=3, save_every=1)
    failed = tmp_path / "runs" / "failed"
    left = failed / f".headway-{'0' * 16}{PARTIAL}"
    left.mkdir()
    (left / "half").write_bytes(bytes(1000))
    answer = headway.load(done)("i love it 3")
    found = prunable(tmp_path / "runs")
    names = {each.path.relative_to(tmp_path / "runs").as_posix() for each in found}
    training = "done/training"
    expected = {f"{training}/state-3", f"{training}/state-4", f"{training}/best.safetensors", f"{training}/examples"}
    assert names == {*expected, f"failed/{left.name}"}
    total = sum(each.bytes for each in found)
    on_disk = [path for name in names for path in [tmp_path / "runs" / name, *(tmp_path / "runs" / name).rglob("*")]]
    assert total == sum(path.stat().st_size for path in on_disk if path.is_file()) > 10_000
    asked = command("runs", "--prune", cwd=tmp_path, input="n\n")
    assert asked.returncode == 1 and f"{total:,} bytes in all" in asked.stdout and prunable(tmp_path / "runs") == found
    shown = command("runs", "--prune", "--yes", "--json", cwd=tmp_path)
    assert json.loads(shown.stdout)["bytes"] == total and not prunable(tmp_path / "runs")
    assert headway.load(done)("i love it 3") == answer
    assert "nothing to remove" in command("runs", "--prune", cwd=tmp_path).stdout
    assert jobs.resume(failed).result.steps == 4  # an unfinished run keeps its states


def test_train_quiet_and_as_json(data: Path, tmp_path: Path) -> None:
    line = ["train", "classify", data, *OPTIONS, "--steps", "2", "--out"]
    quiet = command(*line, "quiet", "--quiet", cwd=tmp_path)
    assert quiet.returncode == 0 and quiet.stdout == ""
    assert all(each.startswith("warning: ") for each in quiet.stderr.splitlines())
    shown = command(*line, "json", "--json", cwd=tmp_path)
    result = json.loads(shown.stdout)
    assert (result["folder"], result["steps"], result["stopped_by"]) == ("json", 2, "steps")
    assert result["scores"]["accuracy"] >= 0 and "trained 2 steps" in shown.stderr
    wrong = command(*line, "wrong", "--quiet", "--set", "lr=x", cwd=tmp_path)
    assert wrong.returncode == 2 and "lr" in wrong.stderr


@pytest.mark.parametrize("given", [("detect", []), ("classify", ["--set", "report=mlflow,tensorboard"])])
def test_a_missing_library_is_named_before_any_work(
    given: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.jobs.failures.find_spec", lambda name: None)
    monkeypatch.setattr("headway.training.log.find_spec", lambda name: None)
    monkeypatch.setattr("headway.jobs.preparation.open_data", lambda *_: pytest.fail("data is read"))
    monkeypatch.setattr("headway.jobs.training.open_data", lambda *_: pytest.fail("data is read"))
    task, more = given
    line = 'pip install "headway[vision]"' if task == "detect" else "pip install mlflow"
    for name in ("check", "train"):
        shown = command(name, task, *more, cwd=tmp_path)
        assert shown.returncode == 2 and line in shown.stderr, shown.stderr
    assert not list(tmp_path.iterdir())
