"""Trials: faults during a run. Signals, changed data, a second process, non-finite values, no memory."""

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
from torture.child_process import REFUSED, FaultySource, TrainingProcess, faulty_loss
from torture.trials import Trial, finishes_undisturbed, intact, outcome
from training.toy_run import ToyModel, ToySource

from headway.training.loss_spikes import RECENT
from headway.training.state import load_state, states
from headway.training.state_diff import first_difference
from headway.training.step_dump import replay

STEPS = 40
LONG = 4.0  # seconds of a step


def signal_once(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 7}
    number = random.choice([signal.SIGTERM, signal.SIGINT])
    child = TrainingProcess(folder, slow=0.01, **settings)
    child.reach(random.randint(1, 30))
    time.sleep(random.uniform(0, 0.02))
    os.kill(child.pid, number)
    code = child.wait()
    assert code == 128 + number, f"exit code {code}"
    lost = child.step - intact(folder)
    assert lost == 0
    finishes_undisturbed(folder, **settings)
    return Trial(lost=lost, note=number.name)


def signal_twice(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 2}
    number = random.choice([signal.SIGTERM, signal.SIGINT])
    child = TrainingProcess(folder, slow=0.01, **settings)
    child.reach(random.randint(3, 20))
    child.kill()
    # a background process of a script ignores Ctrl-C; use the handler of a terminal
    child = TrainingProcess(
        folder, first=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), slow=LONG, **settings
    )
    child.reach(intact(folder) + 1)  # a long step, in which it cannot end in an orderly way
    start = time.monotonic()
    while child.process.is_alive() and time.monotonic() - start < LONG:
        os.kill(child.pid, number)
        time.sleep(random.uniform(0.05, 0.1))
    code = child.wait()
    assert time.monotonic() - start < LONG, "it continued after the second signal"
    assert code in (-number, 128 + number, 1), f"exit code {code}"  # 1: interrupted while Python exits
    lost = child.step - intact(folder)
    assert lost <= 2
    finishes_undisturbed(folder, **settings)
    return Trial(lost=lost, note=number.name)


def data_changed(random: Random, folder: Path) -> Trial:
    settings = {"steps": 10, "save_every": 2}
    child = TrainingProcess(folder, slow=0.01, **settings)
    child.reach(5)
    child.kill()
    lost = child.step - intact(folder)
    again = TrainingProcess(folder, source=ToySource(fingerprint=f"toy.tsv {random.randrange(1000)}"), **settings)
    assert again.wait() == REFUSED and "toy.tsv" in again.error, "changed data was not noticed"
    finishes_undisturbed(folder, **settings)
    return Trial(lost=lost)


def second_process(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 2}
    child = TrainingProcess(folder, slow=0.02, **settings)
    child.reach(random.randint(2, 20))
    second = TrainingProcess(folder, **settings)
    assert second.wait() == REFUSED and str(child.pid) in second.error, "two processes trained in one folder"
    assert child.wait() == 0
    finishes_undisturbed(folder, **settings)
    return Trial()


def not_finite(random: Random, folder: Path) -> Trial:
    if random.random() < 0.5:
        factors = {(random.randint(0, 1), random.randrange(22)): float("inf")}
        settings = {"source": FaultySource(factors), "loss": faulty_loss}
    else:
        settings = {"source": FaultySource({}), "loss": faulty_loss, "optimizer": "adamw", "lr": 1e20, "warmup": 0}
    settings |= {"steps": STEPS, "save_every": 2, "accumulate": random.randint(1, 2)}
    child = TrainingProcess(folder, **settings)
    assert child.wait() == REFUSED, "the run continued"
    step = child.step + 1
    assert f"step {step}:" in child.error and "toy.tsv:" in child.error, child.error
    saved = intact(folder)
    for path in states(folder / "training"):
        assert all(tensor.isfinite().all() for tensor in load_state(path)["model"].values())
    model = ToyModel(seed=5)
    again = replay(folder / "training" / f"autopsy-{step}", model, loss=faulty_loss, device=torch.device("cpu"))
    assert again.reproduced and again.step == step, again.report()
    assert all(parameter.isfinite().all() for parameter in model.parameters()), "the bad update was made"
    return Trial(lost=child.step - saved, note=again.first_nonfinite)


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
    child = TrainingProcess(folder, **settings)
    child.reach(random.randint(RECENT, SPIKE_STEPS - 1))
    child.kill()
    lost = child.step - intact(folder)
    child = TrainingProcess(folder, **settings)
    assert child.wait() == 0, child.error
    found = outcome(folder)
    warnings = [entry["warning"] for entry in found["history"] if "warning" in entry]
    assert len(warnings) == 1 and f"toy.tsv:{index + 1}" in warnings[0], f"warnings about a spike: {warnings}"
    assert sum(entry.get("skipped", 0) for entry in found["history"]) == 1
    with TemporaryDirectory() as other:
        assert TrainingProcess(Path(other), **settings).wait() == 0
        assert (difference := first_difference(found, outcome(Path(other)))) is None, difference
    return Trial(lost=lost)


class MemoryHungryModel(nn.Module):
    """A model whose activations take about `megabytes` for every row."""

    def __init__(self, megabytes: int) -> None:
        super().__init__()
        self.model = ToyModel(dropout=0.0)  # dropout depends on the split
        self.copies = megabytes * 2**20 // (2 * 4 * 5 * 8)  # two tensors of 5 positions × width 8 × 4 bytes

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        wide = self.model.embed(ids).repeat(1, 1, self.copies)  # (row, position, width × copies)
        return self.model(ids) + (wide * wide).mean() * 0


def even_source(source: ToySource | None = None) -> ToySource:
    """Examples of equal length, so that every batch takes the same memory."""
    source = source or ToySource()
    source.examples = [np.resize(example, 6) for example in source.examples]
    return source


ALLOCATED: list[torch.Tensor] = []  # until the process ends
ARENA_MAX = -8  # of malloc.h


def limit(megabytes: int) -> None:
    """Limit this process to `megabytes` more, after filling what is free on the heap. Threads started later share one
    arena: one of their own would reserve up to 128 MiB of addresses."""
    assert ctypes.CDLL(None).mallopt(ARENA_MAX, 1)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used, resource.RLIM_INFINITY))
    with contextlib.suppress(RuntimeError, MemoryError):
        while True:
            ALLOCATED.append(torch.empty(2**18))
    resource.setrlimit(resource.RLIMIT_AS, (used + megabytes * 2**20, resource.RLIM_INFINITY))


def out_of_memory(random: Random, folder: Path) -> Trial:
    megabytes = random.randint(30, 60)
    settings = {"source": even_source(), "steps": 3}  # enough for forward and backward of two rows, not of four
    child = TrainingProcess(
        folder, model=lambda: MemoryHungryModel(megabytes), first=lambda: limit(7 * megabytes), **settings
    )
    assert child.wait() == 0, child.error or "the process died"
    found = outcome(folder)
    warnings = [entry for entry in found["history"] if "warning" in entry]
    assert warnings and all("out of memory" in entry["warning"] for entry in warnings), warnings
    split = found["stepper"]["accumulate"]
    assert split == 2 ** len(warnings) and found["status"]["step"] == 3
    with TemporaryDirectory() as other:
        reference = TrainingProcess(
            Path(other), model=lambda: MemoryHungryModel(megabytes), accumulate=split, **settings
        )
        assert reference.wait() == 0
        expected = outcome(Path(other))
    found["history"] = [entry for entry in found["history"] if "loss" in entry]
    if all(entry["step"] == 0 for entry in warnings):  # equal to a run with this split from the start
        assert (difference := first_difference(found, expected)) is None, difference
    for entry, like in zip(found["history"], expected["history"], strict=True):
        assert abs(entry["loss"] - like["loss"]) < 1e-5, (entry, like)
    return Trial()
