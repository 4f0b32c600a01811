"""A run of `detect` that is stopped and resumed equals the uninterrupted one, bit for bit: mosaics, noise and all."""

import dataclasses
import os
import signal
from pathlib import Path

import pytest

from headway.checkpoints import TensorFiles
from headway.jobs import make_plan
from headway.jobs.training import run_plan
from headway.tasks.detect import Detect
from headway.training.protocols import Callback, Status

SMALL = {"model.width": 32, "model.layers": 1, "model.heads": 2, "eval_every": 0, "batch": 4, "task.mosaic": 0.5}


class StopAt(Callback):
    def __init__(self, step: int):
        self.step = step

    def on_step(self, status: Status) -> None:
        if status.step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_stopped_run_resumes_exactly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Detect, "builtin", dataclasses.replace(Detect.builtin, train=60, test=8))
    plan = make_plan("detect", steps=5, settings=SMALL)
    run_plan(plan, tmp_path / "whole")
    stopped = run_plan(plan, tmp_path / "parts", callbacks=[StopAt(2)])
    assert stopped.result.stopped_by == "SIGTERM" and stopped.result.steps == 2
    run_plan(plan, tmp_path / "parts", resume=True)
    whole, parts = TensorFiles(tmp_path / "whole"), TensorFiles(tmp_path / "parts")
    assert set(whole.names) == set(parts.names)
    assert [name for name in whole.names if whole[name].numpy().tobytes() != parts[name].numpy().tobytes()] == []
