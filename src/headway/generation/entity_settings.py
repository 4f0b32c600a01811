"""Which entities of a text are found: what a person chooses, declared with its help and its check."""

from __future__ import annotations

from dataclasses import dataclass

from headway.generation.option import FLAG, option, optional, text


@dataclass(frozen=True)
class EntitySettings:
    labels: str | None = option(
        None,
        "entities by name (GLiNER): the kinds to find, with commas between them.",
        optional(text),
        commands=("run",),
    )
    nested: bool = option(
        False, "entities by name (GLiNER): an entity may lie inside another.", FLAG, commands=("run",)
    )
