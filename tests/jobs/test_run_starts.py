"""Runs with adapters, runs that cannot start, and runs whose states are gone."""

from pathlib import Path

import pytest
import torch

import headway
from headway import jobs
from headway.errors import ConfigError, DataError, TrainingError

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "batch": 4, "eval_every": 0, "save_every": 0}


def small(task: str, out: Path, data: Path | None = None, **options: object) -> jobs.Trained:
    settings = {**SMALL, **options.pop("settings", {})}
    return jobs.train(task, data, out=out, steps=options.pop("steps", 2), settings=settings, **options)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "text.txt"
    path.write_text("".join(f"Guest {i} has asked for tea in room {i % 7}.\n" for i in range(400)))
    return path


@pytest.fixture(scope="module")
def base(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a tied head, trained from scratch with adapters."""
    folder = tmp_path_factory.mktemp("base") / "run"
    small("generate", folder, text, lora=2)
    return folder


def test_adapters_of_a_tied_model_train_and_are_saved_beside_the_merged_model(
    base: Path, text: Path, tmp_path: Path
) -> None:
    assert not (base / "adapter").exists()  # there is no model that they could be added to
    run = small("generate", tmp_path / "run", text, start=base, lora=2)
    assert not any("lora" in name for name, _ in run.bundle.model.named_parameters())
    ids = torch.randint(5, 40, (2, 6))
    expected = headway.load(tmp_path / "run").logits(input_ids=ids)
    assert torch.allclose(headway.load(tmp_path / "run" / "adapter").logits(input_ids=ids), expected, atol=1e-5)
    assert not torch.allclose(headway.load(base).logits(input_ids=ids), expected, atol=1e-5)


def test_a_run_that_cannot_start_leaves_nothing_behind(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no parameter matches 'bloks'"):
        small("generate", tmp_path / "run", text, freeze=["bloks"])
    assert not (tmp_path / "run").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    with pytest.raises(ConfigError, match="no parameter matches 'bloks'"):
        small("generate", tmp_path / "mine", text, freeze=["bloks"])
    assert (tmp_path / "mine" / "notes.txt").read_text() == "kept"
    (tmp_path / "one.tsv").write_text("text\tlabel\nonly\ta\n")
    with pytest.raises(DataError):
        small("classify", tmp_path / "short", tmp_path / "one.tsv")
    assert not (tmp_path / "short").exists()


def test_the_kept_step_is_named(text: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    small("generate", tmp_path / "run", text, say=lines.append, settings={"eval_every": 1})
    assert any(line.startswith("kept         the weights of step ") for line in lines)


def test_a_finished_run_without_its_states_is_not_trained_again(text: Path, tmp_path: Path) -> None:
    small("generate", tmp_path / "run", text, settings={"save_every": 1, "keep": 1, "keep_states": True})
    weights = (tmp_path / "run" / "model.safetensors").read_bytes()
    for path in (tmp_path / "run" / "training").glob("state-*"):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    with pytest.raises(TrainingError, match="has finished and its states were removed"):
        jobs.resume(tmp_path / "run")
    (tmp_path / "run" / "training" / "scores.json").unlink()  # as if killed between the model and its scores
    with pytest.raises(TrainingError, match="its states are gone"):
        jobs.resume(tmp_path / "run")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == weights
