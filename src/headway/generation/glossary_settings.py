"""Which terms a translation has: what a person chooses, declared with its help and its check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import ConfigError
from headway.generation.option import option


def terms(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, str | Path | Mapping):
        raise ConfigError(f"{name} is {value!r:.80}: it must be a file or a dict of terms")
    return value


@dataclass(frozen=True)
class GlossarySettings:
    glossary: str | None = option(
        None,
        "For translate: a file with a source term, a tab and its translation on each line. Where the source has a "
        "term, the translation has it too.",
        terms,
        commands=("run",),
    )
