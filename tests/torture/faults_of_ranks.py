"""Trials: one of several ranks dies, and the run is gone on with, by as many ranks or by more or fewer."""

from __future__ import annotations

import time
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torture.lives import Life
from torture.rank_lives import Lives
from torture.trials import Trial, intact, outcome
from train.toy_run import ToyModel

from headway.train.compare import first_difference

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
