"""Truncated back-propagation through time: the state is carried from window to window, and a resumed run has it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from support.task_run import started

from headway.tasks.batches import StreamSource
from headway.training import resume
from headway.training.loop import fit
from headway.training.settings import Settings

STEPS = 7


def run(folder: Path, *, steps: int, resumed: bool = False) -> dict[str, torch.Tensor]:
    """The weights after so many steps of an LSTM language model, over an epoch's end, with dropout."""
    task, model, data = started("generate", rows=12, architecture="lstm", vocab=300, context=16)
    model.dropout = model.layers.dropout = 0.1
    ids = np.resize(np.concatenate([e["ids"] for row in data.train() for e in task.examples(row)]), 4 * 5 * 16 + 1)
    source = StreamSource(ids, task, context=16, batch=4, seed=0, fingerprint="fixed")
    settings = Settings(steps=steps, batch=4, lr=0.01, optimizer="adamw", device="cpu", save_every=0)
    fit(model, source, loss=task.loss, settings=settings, folder=folder, resume=resumed)
    return model.state_dict()


def test_windows_of_a_batch_follow_those_of_the_batch_before(tmp_path: Path) -> None:
    task, _, _ = started("generate", rows=12, architecture="gru", vocab=300, context=4)
    ids = np.arange(4 * 4 * 3 + 1)
    source = StreamSource(ids, task, context=4, batch=3, seed=0, fingerprint="")
    batches = [source.load(indices, 0) for indices in source.epoch(0)]
    assert not batches[0].inputs["read_slots"].any()
    for before, after in pairwise(batches):
        assert torch.equal(before.targets["ids"][:, -1], after.inputs["inputs"][:, 0])
        assert torch.equal(before.inputs["write_slots"], after.inputs["read_slots"])


def test_a_resumed_run_has_the_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", steps=STEPS)
    for at in (2, 3):
        run(tmp_path / f"at{at}", steps=at)
        resumed = run(tmp_path / f"at{at}", steps=STEPS, resumed=True)
        assert all(torch.equal(whole[name], resumed[name]) for name in whole), at
    monkeypatch.setattr(resume, "carried_state", lambda model: {})  # the control: without it the weights differ
    run(tmp_path / "without", steps=2)
    other = run(tmp_path / "without", steps=STEPS, resumed=True)
    assert not all(torch.equal(whole[name], other[name]) for name in whole)
