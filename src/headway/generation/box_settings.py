"""Which objects of a picture are shown: what a person chooses, declared with its help and its check."""

from __future__ import annotations

from dataclasses import dataclass

from headway.generation.option import option, optional, real


@dataclass(frozen=True)
class BoxSettings:
    threshold: float | None = option(
        None,
        "Least score of an object or entity that is shown, from 0 to 1 (default: 0.5).",
        optional(real("from 0 to 1", lambda value: 0 <= value <= 1)),
        commands=("run",),
    )
