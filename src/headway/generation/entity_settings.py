"""Which entities of a text are found: what a person chooses, declared with its help and its check."""

from __future__ import annotations

from dataclasses import dataclass

from headway.generation.option import FLAG, option, optional, text


@dataclass(frozen=True)
class EntitySettings:
    labels: str | None = option(
        None,
        "Entities by name (GLiNER): the kinds to find, separated by commas.",
        optional(text),
        commands=("run",),
    )
    nested: bool = option(
        False, "Entities by name (GLiNER): allow an entity inside another one.", FLAG, commands=("run",)
    )
