"""Which predictions are sure enough to be shown: what a person chooses, declared with its help and its check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from headway.errors import InputError
from headway.generation.option import option, optional, real

T = TypeVar("T")


@dataclass(frozen=True)
class BoxSettings:
    threshold: float | None = option(
        None,
        "Minimum score from 0 to 1: of an object or entity that is shown (default: 0.5); of a label, which is null "
        "below it; of each of several labels (default: fitted in training).",
        optional(real("from 0 to 1", lambda value: 0 <= value <= 1)),
        commands=("run",),
    )


def threshold_of(options: Mapping[str, Any], default: T) -> float | T:
    """The threshold among the options of a prediction."""
    value = options.get("threshold")
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise InputError(f"threshold is {value!r}: it must be from 0 to 1")
    return value
