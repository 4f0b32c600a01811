"""`--resume --steps N`: a finished run is extended, from the command line and from Python."""

import json
from pathlib import Path

import pytest
import torch
from support.commands import headway as command

import headway
from headway import jobs
from headway.errors import ConfigError, TrainingError

SETTINGS = {
    "model.width": 16,
    "model.layers": 1,
    "model.heads": 2,
    "batch": 8,
    "task.vocab": 60,
    "task.ngrams": 0,  # they know the labels at once, so that later weights were no better than the first
    "task.convolutions": 0,
    "eval_every": 2,
}
ROWS = "".join(f"i {'love' if i % 2 else 'hate'} number {i}\t{'good' if i % 2 else 'bad'}\n" for i in range(80))


@pytest.fixture
def here(tmp_path: Path) -> Path:
    (tmp_path / "mine.tsv").write_text(ROWS)
    return tmp_path


def finished(here: Path, name: str, **options: object) -> Path:
    settings = {**SETTINGS, "keep_states": True}
    return jobs.train("classify", here / "mine.tsv", out=here / name, steps=4, settings=settings, **options).folder


def weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


def test_a_finished_run_is_extended_by_the_command_and_by_python_alike(here: Path) -> None:
    for name in ("a", "b"):
        finished(here, name)
    before = weights(here / "a")
    done = command("train", "classify", "--resume", "--steps", "9", "--out", "a", cwd=here)
    assert done.returncode == 0, done.stderr
    assert "the run now has 9 steps, was 4 steps: its learning rate rises from" in done.stdout
    assert "trained 9 steps" in done.stdout and "9 steps in" in (here / "a" / "README.md").read_text()
    assert json.loads((here / "a" / "training" / "plan.json").read_text())["train"]["steps"] == 9
    assert weights(here / "a") != before
    run = headway.resume(here / "b", steps=9)
    assert run.result.steps == 9 and weights(here / "a") == weights(here / "b")
    again = command("train", "classify", "--resume", "--out", "a", cwd=here)  # the length is the run's own from now on
    assert again.returncode == 0 and "the run has finished its 9 steps; to extend it" in again.stdout


def test_the_whole_command_may_be_repeated(here: Path) -> None:
    given = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    line = ["train", "classify", "mine.tsv", *given, "--out", "run", "--keep-states", "--steps"]
    assert command(*line, "3", cwd=here).returncode == 0
    assert "trained 5 steps" in command(*line, "5", "--resume", cwd=here).stdout
    other = command(*line, "6", "--resume", "--seed", "3", cwd=here)
    assert other.returncode == 2 and "train.seed: 0 there, 3 given" in other.stderr and "to extend it" in other.stderr
    assert json.loads((here / "run" / "training" / "plan.json").read_text())["train"]["steps"] == 5


def test_a_finished_run_keeps_its_states_on_request(here: Path) -> None:
    given = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    assert command("train", "classify", "mine.tsv", *given, "--steps", "2", "--out", "run", cwd=here).returncode == 0
    kept = {path.name for path in (here / "run" / "training").iterdir()}
    assert not [name for name in kept if "state" in name or name.startswith(("best", "examples"))]
    before = weights(here / "run")
    again = command("train", "classify", "--resume", "--steps", "4", "--out", "run", cwd=here)
    assert again.returncode == 2 and "has finished and its states were removed" in again.stderr
    assert "--start run" in again.stderr and weights(here / "run") == before
    assert headway.load(here / "run")("i love number 3")["label"] in ("good", "bad")
    assert list(finished(here, "other").glob("training/state-*"))  # on request


def test_a_length_that_is_not_more_leaves_the_run_as_it_was(here: Path) -> None:
    folder = finished(here, "run")
    before = (folder / "training" / "plan.json").read_bytes(), weights(folder)
    with pytest.raises(TrainingError, match=r"has trained 4 steps .* already; 3 steps is not more"):
        headway.resume(folder, steps=3)
    with pytest.raises(ConfigError, match="steps: -3; a number above 0"):
        headway.resume(folder, steps=-3)
    with pytest.raises(ConfigError, match="set exactly one of steps, epochs and minutes"):
        headway.resume(folder, steps=9, epochs=9)
    assert before == ((folder / "training" / "plan.json").read_bytes(), weights(folder))


def test_adapters_are_extended(here: Path) -> None:
    base = finished(here, "base")
    finished(here, "run", start=base, lora=2)
    best, model = (here / "run" / name for name in ("training/best.safetensors", "model.safetensors"))
    assert best.stat().st_size < model.stat().st_size / 2  # frozen weights are in the run's model
    run = headway.resume(here / "run", steps=7)
    ids = torch.arange(5, 15).view(2, 5)
    expected = headway.load(run.folder).logits(input_ids=ids)
    assert torch.allclose(headway.load(here / "run" / "adapter").logits(input_ids=ids), expected, atol=1e-5)
    assert not torch.allclose(headway.load(base).logits(input_ids=ids), expected, atol=1e-3)
