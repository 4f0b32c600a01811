"""What all trials share: their result, and how runs are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from torture.child_process import TrainingProcess

from headway.training.state import load_latest, states, verify
from headway.training.state_diff import first_difference, without_clock


class NotPossibleError(Exception):
    """This machine does not allow the fault to be caused."""


@dataclass(frozen=True)
class Trial:
    lost: int = 0  # steps repeated after one fault, at most
    times: int = 1  # how often the fault was caused
    note: str = ""


Fault = Callable[[Random, Path], Trial]


def outcome(folder: Path) -> dict[str, Any]:
    training = folder / "training"
    state = load_latest(training).state
    del state["status"]["elapsed"]
    history = [json.loads(line) for line in (training / "metrics.jsonl").read_text().splitlines()]
    parts = {part: state[part] for part in ("model", "optimizer", "ranks", "status", "stepper", "spikes")}
    return {**parts, "history": without_clock(history)}


@cache
def undisturbed(**settings: Any) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        assert TrainingProcess(Path(folder), **settings).wait() == 0
        return outcome(Path(folder))


def finishes_undisturbed(folder: Path, **settings: Any) -> None:
    """Assert that the run in `folder` resumes, ends, and equals the undisturbed run."""
    child = TrainingProcess(folder, **settings)
    assert child.wait() == 0, child.error
    assert (difference := first_difference(outcome(folder), undisturbed(**settings))) is None, difference


def intact(folder: Path) -> int:
    """Assert that every state is complete. Returns the step of the newest, 0 if there is none."""
    found = states(folder / "training")
    problems = [problem for path in found if (problem := verify(path))]
    assert not problems, problems
    return int(found[0].name[6:]) if found else 0
