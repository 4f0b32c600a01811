"""Runs that keep their adapter alone: opened, they answer as a run that keeps everything."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.untrained import embedder

import headway
from headway import jobs
from headway.checkpoints import TensorFiles
from headway.errors import CheckpointError, ConfigError

ROWS = [{"text": f"{word} thing {number}", "label": word} for number in range(30) for word in ("buy", "return")]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return embedder(tmp_path_factory.mktemp("start") / "model")


def trained(start: Path, out: Path, **settings: Any) -> jobs.Trained:
    return headway.train("classify", ROWS, start=start, out=out, steps=4, lora=2, settings=settings)


def test_a_run_of_an_adapter_alone_answers_as_one_with_all_weights(start: Path, tmp_path: Path) -> None:
    whole, alone = trained(start, tmp_path / "whole"), trained(start, tmp_path / "alone", adapter_only=True)
    assert (whole.folder / "model.safetensors").exists() and not (alone.folder / "model.safetensors").exists()
    texts = ["buy thing 3", "return thing 5"]
    expected, found = headway.load(whole.folder), headway.load(alone.folder)
    for one, other in zip(expected(texts), found(texts), strict=True):
        assert other["label"] == one["label"] and other["scores"] == pytest.approx(one["scores"], abs=1e-6)
    assert headway.evaluate(alone.folder)["accuracy"] == headway.evaluate(whole.folder)["accuracy"]
    saved = found.save(tmp_path / "merged")  # on its own again
    ids = torch.arange(5, 11).view(1, 6)
    torch.testing.assert_close(headway.load(saved).logits(input_ids=ids), expected.logits(input_ids=ids))
    again = headway.train("classify", ROWS, start=alone.folder, out=tmp_path / "more", steps=1)
    assert TensorFiles(again.folder).names


def test_without_the_model_it_started_from_it_says_so(start: Path, tmp_path: Path) -> None:
    moved = headway.load(start).save(tmp_path / "base")
    run = trained(moved, tmp_path / "run", adapter_only=True)
    moved.rename(tmp_path / "elsewhere")
    with pytest.raises(CheckpointError, match="keeps its adapter alone"):
        headway.load(run.folder)


def test_it_is_for_adapters(start: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give --lora"):
        jobs.make_plan("classify", start=start, settings={"adapter_only": True})
    with pytest.raises(ConfigError, match="leave --keep-states out"):
        jobs.make_plan("classify", start=start, lora=2, settings={"adapter_only": True, "keep_states": True})
