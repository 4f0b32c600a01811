"""Trials: what can happen to a run as it goes. Signals, other hands on its folder, bad numbers, no memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import nn
from torture.lives import REFUSED, FaultySource, Life, faulty_loss
from torture.trials import Trial, intact, outcome, same
from train.toy_run import ToyModel, ToySource

from headway.training.loss_spikes import RECENT
from headway.training.state import load_state, states
from headway.training.state_diff import first_difference
from headway.training.step_dump import replay

STEPS = 40
LONG = 4.0  # seconds of a step


def asked_to_stop(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 7}
    number = random.choice([signal.SIGTERM, signal.SIGINT])
    life = Life(folder, slow=0.01, **settings)
    life.reach(random.randint(1, 30))
    time.sleep(random.uniform(0, 0.02))
    os.kill(life.pid, number)
    code = life.end()
    assert code == 128 + number, f"exit code {code}"
    lost = life.step - intact(folder)
    assert lost == 0
    same(folder, **settings)
    return Trial(lost=lost, note=number.name)


def asked_twice(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 2}
    number = random.choice([signal.SIGTERM, signal.SIGINT])
    life = Life(folder, slow=0.01, **settings)
    life.reach(random.randint(3, 20))
    life.kill()
    # what is started in the background of a script ignores Ctrl-C; this is to be as on a terminal
    life = Life(folder, first=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), slow=LONG, **settings)
    life.reach(intact(folder) + 1)  # and is busy for a long time, in which it cannot come to an orderly end
    began = time.monotonic()
    while life.process.is_alive() and time.monotonic() - began < LONG:
        os.kill(life.pid, number)
        time.sleep(random.uniform(0.05, 0.1))
    code = life.end()
    assert time.monotonic() - began < LONG, "asked twice, it went on"
    assert code in (-number, 128 + number, 1), f"exit code {code}"  # an interrupt while Python ends is told by code 1
    lost = life.step - intact(folder)
    assert lost <= 2
    same(folder, **settings)
    return Trial(lost=lost, note=number.name)


def data_changed(random: Random, folder: Path) -> Trial:
    settings = {"steps": 10, "save_every": 2}
    life = Life(folder, slow=0.01, **settings)
    life.reach(5)
    life.kill()
    lost = life.step - intact(folder)
    again = Life(folder, source=ToySource(fingerprint=f"toy.tsv {random.randrange(1000)}"), **settings)
    assert again.end() == REFUSED and "toy.tsv" in again.error, "other data was taken for the run's own"
    same(folder, **settings)
    return Trial(lost=lost)


def second_process(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 2}
    life = Life(folder, slow=0.02, **settings)
    life.reach(random.randint(2, 20))
    second = Life(folder, **settings)
    assert second.end() == REFUSED and str(life.pid) in second.error, "two processes trained in one folder"
    assert life.end() == 0
    same(folder, **settings)
    return Trial()


def not_finite(random: Random, folder: Path) -> Trial:
    if random.random() < 0.5:
        factors = {(random.randint(0, 1), random.randrange(22)): float("inf")}
        settings = {"source": FaultySource(factors), "loss": faulty_loss}
    else:
        settings = {"source": FaultySource({}), "loss": faulty_loss, "optimizer": "adamw", "lr": 1e20, "warmup": 0}
    settings |= {"steps": STEPS, "save_every": 2, "accumulate": random.randint(1, 2)}
    life = Life(folder, **settings)
    assert life.end() == REFUSED, "the run went on"
    step = life.step + 1
    assert f"step {step}:" in life.error and "toy.tsv:" in life.error, life.error
    saved = intact(folder)
    for path in states(folder / "training"):
        assert all(tensor.isfinite().all() for tensor in load_state(path)["model"].values())
    model = ToyModel(seed=5)
    again = replay(folder / "training" / f"autopsy-{step}", model, loss=faulty_loss, device=torch.device("cpu"))
    assert again.reproduced and again.step == step, again.report()
    assert all(parameter.isfinite().all() for parameter in model.parameters()), "the bad update was made"
    return Trial(lost=life.step - saved, note=again.culprit)


SPIKE_STEPS = RECENT + 42


def spike(random: Random, folder: Path) -> Trial:
    epoch, index = random.randint(23, 26), random.randrange(22)  # 6 steps an epoch: steps 139 to 162
    settings = {
        "source": FaultySource({(epoch, index): 1e4}),
        "loss": faulty_loss,
        "steps": SPIKE_STEPS,
        "save_every": 10,
        "clip": 1.0,
    }
    life = Life(folder, **settings)
    life.reach(random.randint(RECENT, SPIKE_STEPS - 1))
    life.kill()
    lost = life.step - intact(folder)
    life = Life(folder, **settings)
    assert life.end() == 0, life.error
    found = outcome(folder)
    told = [entry["warning"] for entry in found["history"] if "warning" in entry]
    assert len(told) == 1 and f"toy.tsv:{index + 1}" in told[0], f"what was said of a spike: {told}"
    assert sum(entry.get("skipped", 0) for entry in found["history"]) == 1
    with TemporaryDirectory() as other:
        assert Life(Path(other), **settings).end() == 0
        assert (difference := first_difference(found, outcome(Path(other)))) is None, difference
    return Trial(lost=lost)


class Hungry(nn.Module):
    """A model whose activations take about `megabytes` for every row."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self.model = ToyModel(dropout=0.0)  # which is drawn anew for every split
        self.copies = megabytes * 2**20 // (2 * 4 * 5 * 8)  # two tensors of 5 positions × width 8 × 4 bytes

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        wide = self.model.embed(ids).repeat(1, 1, self.copies)  # (row, position, width × copies)
        return self.model(ids) + (wide * wide).mean() * 0


def even_source(source: ToySource | None = None) -> ToySource:
    """Every example of one length, so that every batch takes the same room."""
    source = source or ToySource()
    source.examples = [np.resize(example, 6) for example in source.examples]
    return source


HELD: list[torch.Tensor] = []  # until the process ends
ARENA_MAX = -8  # of malloc.h


def limit(megabytes: int) -> None:
    """This process may take so much more; what the heap had free before is taken first. A thread begun later takes its
    memory from the same heap: one of its own would hold up to 128 MiB of addresses, used or not."""
    assert ctypes.CDLL(None).mallopt(ARENA_MAX, 1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    with contextlib.suppress(RuntimeError, MemoryError):
        while True:
            HELD.append(torch.empty(2**18))
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, resource.RLIM_INFINITY))


def out_of_memory(random: Random, folder: Path) -> Trial:
    megabytes = random.randint(30, 60)
    settings = {"source": even_source(), "steps": 3}  # room for two rows going forward and back, not for four
    life = Life(folder, model=lambda: Hungry(megabytes), first=lambda: limit(7 * megabytes), **settings)
    assert life.end() == 0, life.error or "the process died"
    found = outcome(folder)
    told = [entry for entry in found["history"] if "warning" in entry]
    assert told and all("out of memory" in entry["warning"] for entry in told), told
    split = found["stepper"]["accumulate"]
    assert split == 2 ** len(told) and found["status"]["step"] == 3
    with TemporaryDirectory() as other:
        roomy = Life(Path(other), model=lambda: Hungry(megabytes), accumulate=split, **settings)
        assert roomy.end() == 0
        expected = outcome(Path(other))
    found["history"] = [entry for entry in found["history"] if "loss" in entry]
    if all(entry["step"] == 0 for entry in told):  # split so from the start, then
        assert (difference := first_difference(found, expected)) is None, difference
    for entry, like in zip(found["history"], expected["history"], strict=True):
        assert abs(entry["loss"] - like["loss"]) < 1e-5, (entry, like)
    return Trial()
