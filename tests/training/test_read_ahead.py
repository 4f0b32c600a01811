"""Batches that are loaded by a thread during the step before."""

from __future__ import annotations

import runpy
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.training.read_ahead import MEASURED

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))


class Recorded(toy.ToySource):
    """Records which thread loads."""

    seconds = 0.0

    def __init__(self):
        super().__init__()
        self.threads = []

    def load(self, indices, epoch):
        self.threads.append(threading.current_thread().name)
        time.sleep(self.seconds)
        return super().load(indices, epoch)

    @property
    def ahead(self):
        return sum(name.startswith("read-ahead") for name in self.threads)


class Slow(Recorded):
    seconds = 0.02  # longer than a step


def test_what_takes_long_to_load_is_loaded_during_the_step_before(tmp_path):
    slow, quick = Slow(), toy.ToySource()
    found = toy.toy_fit(tmp_path / "slow", source=slow, steps=14)
    wanted = toy.toy_fit(tmp_path / "quick", source=quick, steps=14)
    assert slow.ahead >= 14 - MEASURED - 1 - 14 // len(quick.epoch(0)) - 1
    assert [entry["loss"] for entry in found.history] == [entry["loss"] for entry in wanted.history]
    assert not any(thread.name.startswith("read-ahead") for thread in threading.enumerate())


def test_what_is_loaded_quickly_is_not(tmp_path, monkeypatch):
    monkeypatch.setattr("headway.training.read_ahead.WORTH", 1.0)
    source = Slow()
    toy.toy_fit(tmp_path, source=source, steps=8)
    assert source.ahead == 0 and len(source.threads) == 8


def test_an_error_of_the_thread_ends_the_run_at_its_step(tmp_path):
    class Broken(Slow):
        def load(self, indices, epoch):
            batch = super().load(indices, epoch)
            if len(self.threads) == MEASURED + 3:
                raise ValueError("picture 7 is damaged")
            return batch

    source = Broken()
    with pytest.raises(ValueError, match="picture 7 is damaged"):
        toy.toy_fit(tmp_path, source=source, steps=14)
    assert source.ahead
    assert not any(thread.name.startswith("read-ahead") for thread in threading.enumerate())
