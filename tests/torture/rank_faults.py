"""Trials: one of several ranks is killed or out of memory, and the run is resumed with the same or another number."""

from __future__ import annotations

import os
import time
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torture.child_process import TrainingProcess
from torture.rank_processes import RankProcesses
from torture.run_faults import MemoryHungryModel, even_source, limit
from torture.trials import Trial, intact, outcome
from training.toy_run import ToyModel, ToySource

from headway.data.batch import Batch
from headway.training.state_diff import first_difference

STEPS = 14
TOLERANCE = 1e-4  # float32 sums in another order


def rank_killed(random: Random, folder: Path, *, kills: int = 2) -> Trial:
    """With dropout, resumed with the same number of ranks: bit for bit the same."""
    settings = {
        "steps": STEPS,
        "shard": random.choice(["none", "full"]),
        "save_every": random.randint(1, 3),
        "accumulate": random.randint(1, 2),
    }
    lost = [0]
    for step in sorted(random.randrange(STEPS) for _ in range(kills)):
        kill_one(random, folder, step, ranks=2, lost=lost, **settings)
    assert max(lost) <= settings["save_every"], f"{lost} steps lost where states are {settings['save_every']} apart"
    RankProcesses(folder, ranks=2, **settings).wait()
    assert (difference := first_difference(outcome(folder), undisturbed(**settings))) is None, difference
    return Trial(lost=max(lost), times=len(lost) - 1, note=settings["shard"])


def ranks_changed(random: Random, folder: Path) -> Trial:
    """Without dropout, resumed with another number of ranks: the same as one process."""
    settings = {"steps": STEPS, "save_every": random.randint(1, 3), "model": _without_dropout}
    sizes = random.choice([(2, 1, 2), (2, 3, 1), (1, 2, 1)])
    lost = [0]
    for size, step in zip(sizes[:2], sorted(random.sample(range(4, STEPS), 2)), strict=True):
        shard = random.choice(["none", "full"])
        kill_one(random, folder, step, ranks=size, lost=lost, shard=shard, **settings)
    assert max(lost) <= settings["save_every"], f"{lost} steps lost where states are {settings['save_every']} apart"
    RankProcesses(folder, ranks=sizes[2], **settings).wait()
    found, expected = outcome(folder), single_process(save_every=settings["save_every"])
    histories = [[entry for entry in each["history"] if "loss" in entry] for each in (found, expected)]
    assert [entry["step"] for entry in histories[0]] == list(range(1, STEPS + 1))
    for entry, like in zip(*histories, strict=True):
        for name in ("loss", "norm"):
            assert abs(entry[name] - like[name]) < TOLERANCE, f"{name} differs: {entry} and {like}"
    for name, weight in expected["model"].items():
        assert torch.allclose(found["model"][name], weight, atol=TOLERANCE), f"{name} differs"
    return Trial(lost=max(lost), times=len(lost) - 1, note=" → ".join(map(str, sizes)))


class LowMemorySource(ToySource):
    """From the first batch on, the memory of one rank is limited."""

    def __init__(self, rank: int, megabytes: int) -> None:
        super().__init__(batch=8)
        self.rank, self.megabytes, self.limited = str(rank), megabytes, False

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        if os.environ["RANK"] == self.rank and not self.limited:
            self.limited = True
            limit(self.megabytes)
        return super().load(indices, epoch)


def rank_out_of_memory(random: Random, folder: Path) -> Trial:
    """All ranks restart with smaller micro-batches, as often as needed."""
    megabytes, shard = random.randint(30, 60), random.choice(["none", "full"])
    settings = {
        "steps": 3,
        "shard": shard,
        "save_every": random.randint(1, 3),
        "model": partial(MemoryHungryModel, megabytes),
    }
    low_memory = even_source(LowMemorySource(random.randrange(2), 7 * megabytes))  # enough for two rows, not for four
    times, codes, errors = 0, [1], [""]
    while any(codes) and times < 3:
        saved = intact(folder)
        group = RankProcesses(folder, ranks=2, source=low_memory, **settings)
        codes = group.terminate(notice=random.uniform(0, 0.2))
        if any(codes):
            errors = [child.error for child in group.processes if child.error]
            explained = errors and all("out of memory on one of 2 ranks" in error for error in errors)
            assert explained, (codes, errors, group.stderr(codes))
            times += 1
    assert not any(codes), f"it did not continue: {errors}"
    found, split = outcome(folder), 2**times
    assert (found["stepper"]["accumulate"], found["status"]["step"]) == (split, 3)
    with TemporaryDirectory() as other:
        RankProcesses(Path(other), ranks=2, source=even_source(ToySource(batch=8)), accumulate=split, **settings).wait()
        expected = outcome(Path(other))
    warnings = [entry["warning"] for entry in found["history"] if "warning" in entry]
    assert warnings and f"{split} micro-batches" in warnings[-1], warnings
    found["history"] = [entry for entry in found["history"] if "loss" in entry]
    if not saved:  # equal to a run with this split from the start
        assert (difference := first_difference(found, expected)) is None, difference
    for entry, like in zip(found["history"], expected["history"], strict=True):
        assert abs(entry["loss"] - like["loss"]) < 1e-5, (entry, like)
    return Trial(times=times, note=shard)


def kill_one(random: Random, folder: Path, step: int, *, ranks: int, lost: list[int], **settings: Any) -> None:
    """Start a run of several ranks, and kill one of them after a step."""
    group = RankProcesses(folder, ranks=ranks, **settings)
    group.reach(step)
    time.sleep(random.uniform(0, 0.1))
    if any(group.kill(random.randrange(ranks), notice=random.uniform(0, 0.2))):  # unless it had ended before
        lost.append(group.step - intact(folder))


@cache
def undisturbed(**settings: Any) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        RankProcesses(Path(folder), ranks=2, **settings).wait()
        return outcome(Path(folder))


@cache
def single_process(*, save_every: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        assert TrainingProcess(Path(folder), model=_without_dropout, steps=STEPS, save_every=save_every).wait() == 0
        return outcome(Path(folder))


def _without_dropout() -> ToyModel:
    return ToyModel(dropout=0.0)
