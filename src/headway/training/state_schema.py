"""What a state has to look like before it is believed. Checksums tell what was damaged; this tells what was
written by other hands, and names the field."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.errors import TrainingError


@dataclass(frozen=True)
class Kind:
    said: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True)
class Named:
    """An object with any names, whose values all have one form."""

    each: Form


# An object of these fields and no others; a list of things of one form; or one value.
Form = dict[str, Any] | list[Any] | Named | Kind


def _whole(low: int, high: int) -> Kind:
    return Kind(f"a whole number from {low} to {high}", lambda value: type(value) is int and low <= value <= high)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1


def _group(value: Any) -> bool:
    """Of an optimiser's parameters; what it says of them besides is the run's to say."""
    names = value.get("param_names") if isinstance(value, dict) else None
    named = isinstance(names, list) and all(isinstance(name, str) for name in [*names, value.get("name")])
    return named and _number(value.get("lr"))


COUNT = _whole(0, 2**53)
STEP = _whole(-1, 2**53)
PARTS = _whole(1, 2**20)
NUMBER = Kind("a number", _number)
POSITIVE = Kind("a number above 0", lambda value: _number(value) and value > 0)
MAYBE_NUMBER = Kind("a number or null", lambda value: value is None or _number(value))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
TEXT = Kind("a text", lambda value: isinstance(value, str))
TENSOR = Kind("a tensor", lambda value: isinstance(value, Tensor))
SCALAR = Kind("a tensor of one number", _scalar)
MAYBE_SCALAR = Kind("a tensor of one number or null", lambda value: value is None or _scalar(value))
GROUP = Kind("an object with name, param_names and lr", _group)
TUPLE = Kind("a tuple", lambda value: isinstance(value, tuple))
ANYTHING = Kind("anything", lambda value: True)

STREAMS = {"torch": TENSOR, "cuda": [TENSOR], "python": TUPLE, "numpy": Named(ANYTHING)}
COUNTS = dict.fromkeys(("count", "rows", "steps", "skipped"), COUNT)
STATE: dict[str, Any] = {
    "model": Named(TENSOR),
    "optimizer": Named({"state": Named(Named(TENSOR)), "param_groups": [GROUP]}),
    "average": ANYTHING,  # `AVERAGE`, where the run has one
    "ranks": [{"rng": STREAMS, "window": {"sums": Named(SCALAR), "norms": MAYBE_SCALAR, **COUNTS}}],
    "status": {
        **dict.fromkeys(("step", "epoch", "position", "steps", "unimproved"), COUNT),
        **dict.fromkeys(("elapsed", "factor"), NUMBER),
        **dict.fromkeys(("evaluated", "best_step"), STEP),
        "best": MAYBE_NUMBER,
        "best_sha256": TEXT,
    },
    "stepper": {"accumulate": PARTS, "scale": {"value": POSITIVE, "finite": COUNT, "patience": PARTS}},
    "spikes": {"norms": [NUMBER], "left_out": FLAG},
    "journal": COUNT,
    "settings": Named(ANYTHING),
    "fingerprint": TEXT,
    "ties": [[TEXT]],
}
AVERAGE: Form = {"updates": COUNT, "mean": Named(TENSOR)}
AUTOPSY: Form = {
    "model": Named(TENSOR),
    "batch": {"inputs": Named(TENSOR), "targets": Named(TENSOR), "count": COUNT, "where": [TEXT]},
    "streams": STREAMS,
    "facts": {"step": COUNT, "precision": TEXT, "factor": POSITIVE, "culprit": TEXT},
}


def require(value: Any, form: Form, *, folder: Path) -> None:
    """Refuse the state in `folder` unless it has the form, by the first field that has not."""
    problem = _misfit(value, form, "")
    if problem is not None:
        raise refusal(folder, problem)


def refusal(folder: Path, problem: str) -> TrainingError:
    return TrainingError(
        f"{folder / 'state.json'}: {problem}. Its checksums agree, so it was written so: it is of another version or "
        f"was changed by hand. Remove {folder.name} to go on from the state before it, or start a new run"
    )


def _misfit(value: Any, form: Form, place: str) -> str | None:
    if isinstance(form, Kind):
        return None if form.fits(value) else f"{place} is {_shown(value)}, where {form.said} is needed"
    if isinstance(form, list):
        if not isinstance(value, list):
            return f"{place} is {_shown(value)}, where a list is needed"
        parts = [(f"{place}.{index}", item, form[0]) for index, item in enumerate(value)]
    else:
        if not isinstance(value, dict):
            return f"{place} is {_shown(value)}, where an object is needed"
        inside = f"{place}." if place else ""
        fields = form if isinstance(form, dict) else dict.fromkeys(value, form.each)
        for name in [*fields, *value]:
            if name not in value:
                return f"{inside}{name} is missing"
            if name not in fields:
                return f"{inside}{name} is not a field of a state"
        parts = [(f"{inside}{name}", value[name], each) for name, each in fields.items()]
    found = (_misfit(item, each, where) for where, item, each in parts)
    return next((problem for problem in found if problem is not None), None)


def _shown(value: Any) -> str:
    if isinstance(value, str | int | float | None):
        return f"{value!r:.60}"
    return f"a {type(value).__name__}"
