"""Trials: one of several ranks dies or has no memory left, and the run is gone on with, by as many or by others."""

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
from torture.faults_of_runs import Hungry, even_source, limit
from torture.lives import Life
from torture.rank_lives import Lives
from torture.trials import Trial, intact, outcome
from train.toy_run import ToyModel, ToySource

from headway.data.batch import Batch
from headway.training.state_diff import first_difference

STEPS = 14
TOLERANCE = 1e-4  # sums of float32 in another order


def rank_killed(random: Random, folder: Path, *, kills: int = 2) -> Trial:
    """With dropout: the same number of ranks goes on, to the same bits."""
    settings = {
        "steps": STEPS,
        "shard": random.choice(["none", "full"]),
        "save_every": random.randint(1, 3),
        "accumulate": random.randint(1, 2),
    }
    lost = [0]
    for step in sorted(random.randrange(STEPS) for _ in range(kills)):
        strike(random, folder, step, ranks=2, lost=lost, **settings)
    assert max(lost) <= settings["save_every"], f"{lost} steps lost where states are {settings['save_every']} apart"
    Lives(folder, ranks=2, **settings).end()
    assert (difference := first_difference(outcome(folder), undisturbed(**settings))) is None, difference
    return Trial(lost=max(lost), times=len(lost) - 1, note=settings["shard"])


def ranks_changed(random: Random, folder: Path) -> Trial:
    """Without dropout, which is drawn anew: whatever the number of ranks, the run is that of one process."""
    settings = {"steps": STEPS, "save_every": random.randint(1, 3), "model": _without_dropout}
    sizes = random.choice([(2, 1, 2), (2, 3, 1), (1, 2, 1)])
    lost = [0]
    for size, step in zip(sizes[:2], sorted(random.sample(range(4, STEPS), 2)), strict=True):
        shard = random.choice(["none", "full"])
        strike(random, folder, step, ranks=size, lost=lost, shard=shard, **settings)
    assert max(lost) <= settings["save_every"], f"{lost} steps lost where states are {settings['save_every']} apart"
    Lives(folder, ranks=sizes[2], **settings).end()
    found, expected = outcome(folder), alone(save_every=settings["save_every"])
    courses = [[entry for entry in each["history"] if "loss" in entry] for each in (found, expected)]
    assert [entry["step"] for entry in courses[0]] == list(range(1, STEPS + 1))
    for entry, like in zip(*courses, strict=True):
        for name in ("loss", "norm"):
            assert abs(entry[name] - like[name]) < TOLERANCE, f"{name} differs: {entry} and {like}"
    for name, weight in expected["model"].items():
        assert torch.allclose(found["model"][name], weight, atol=TOLERANCE), f"{name} differs"
    return Trial(lost=max(lost), times=len(lost) - 1, note=" → ".join(map(str, sizes)))


class Cramped(ToySource):
    """From its first batch on, one rank has little memory left."""

    def __init__(self, rank: int, megabytes: int) -> None:
        super().__init__(batch=8)
        self.rank, self.megabytes, self.limited = str(rank), megabytes, False

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        if os.environ["RANK"] == self.rank and not self.limited:
            self.limited = True
            limit(self.megabytes)
        return super().load(indices, epoch)


def rank_out_of_memory(random: Random, folder: Path) -> Trial:
    """All ranks begin anew, with smaller micro-batches, as often as they must."""
    megabytes, shard = random.randint(30, 60), random.choice(["none", "full"])
    settings = {"steps": 3, "shard": shard, "save_every": random.randint(1, 3), "model": partial(Hungry, megabytes)}
    cramped = even_source(Cramped(random.randrange(2), 7 * megabytes))  # room for two rows, not for four
    times, codes, told = 0, [1], [""]
    while any(codes) and times < 3:
        saved = intact(folder)
        lives = Lives(folder, ranks=2, source=cramped, **settings)
        codes = lives.fall(notice=random.uniform(0, 0.2))
        if any(codes):
            told = [life.error for life in lives.lives if life.error]
            understood = told and all("out of memory on one of 2 ranks" in error for error in told)
            assert understood, (codes, told, lives.said(codes))
            times += 1
    assert not any(codes), f"it did not go on: {told}"
    found, split = outcome(folder), 2**times
    assert (found["stepper"]["accumulate"], found["status"]["step"]) == (split, 3)
    with TemporaryDirectory() as other:
        Lives(Path(other), ranks=2, source=even_source(ToySource(batch=8)), accumulate=split, **settings).end()
        expected = outcome(Path(other))
    warnings = [entry["warning"] for entry in found["history"] if "warning" in entry]
    assert warnings and f"{split} micro-batches" in warnings[-1], warnings
    found["history"] = [entry for entry in found["history"] if "loss" in entry]
    if not saved:  # split so from the start, then
        assert (difference := first_difference(found, expected)) is None, difference
    for entry, like in zip(found["history"], expected["history"], strict=True):
        assert abs(entry["loss"] - like["loss"]) < 1e-5, (entry, like)
    return Trial(times=times, note=shard)


def strike(random: Random, folder: Path, step: int, *, ranks: int, lost: list[int], **settings: Any) -> None:
    """A run of so many ranks comes to a step, and one of them is killed."""
    lives = Lives(folder, ranks=ranks, **settings)
    lives.reach(step)
    time.sleep(random.uniform(0, 0.1))
    if any(lives.kill(random.randrange(ranks), notice=random.uniform(0, 0.2))):  # or it had come to its end before
        lost.append(lives.step - intact(folder))


@cache
def undisturbed(**settings: Any) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        Lives(Path(folder), ranks=2, **settings).end()
        return outcome(Path(folder))


@cache
def alone(*, save_every: int) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        assert Life(Path(folder), model=_without_dropout, steps=STEPS, save_every=save_every).end() == 0
        return outcome(Path(folder))


def _without_dropout() -> ToyModel:
    return ToyModel(dropout=0.0)
