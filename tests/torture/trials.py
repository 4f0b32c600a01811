"""What every trial of a fault shares: what it gives back, and what a run is compared by."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from torture.lives import Life

from headway.training.state import load_latest, states, verify
from headway.training.state_diff import first_difference, without_clock


class NotPossibleError(Exception):
    """This machine does not let the fault be brought about."""


@dataclass(frozen=True)
class Trial:
    lost: int = 0  # steps made again, at most, after one fault
    times: int = 1  # how often the fault struck
    note: str = ""


Fault = Callable[[Random, Path], Trial]


# what runs are compared by


def outcome(folder: Path) -> dict[str, Any]:
    training = folder / "training"
    state = load_latest(training).state
    del state["status"]["elapsed"]
    history = [json.loads(line) for line in (training / "metrics.jsonl").read_text().splitlines()]
    kept = {part: state[part] for part in ("model", "optimizer", "ranks", "status", "stepper", "spikes")}
    return {**kept, "history": without_clock(history)}


@cache
def undisturbed(**settings: Any) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        assert Life(Path(folder), **settings).end() == 0
        return outcome(Path(folder))


def same(folder: Path, **settings: Any) -> None:
    """The run in `folder` goes on to its end, and is the undisturbed one."""
    life = Life(folder, **settings)
    assert life.end() == 0, life.error
    assert (difference := first_difference(outcome(folder), undisturbed(**settings))) is None, difference


def intact(folder: Path) -> int:
    """Every state that bears the name of one is whole; the step of the newest, 0 if there is none."""
    found = states(folder / "training")
    problems = [problem for path in found if (problem := verify(path))]
    assert not problems, problems
    return int(found[0].name[6:]) if found else 0
