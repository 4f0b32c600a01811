"""The errors Headway raises on purpose. A message names the file, line or field, and what to do about it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from headway.printable import printable


class HeadwayError(Exception):
    """Base of everything Headway raises on purpose. Its text is one line in which nothing of foreign origin acts on a
    terminal."""

    def __str__(self) -> str:
        return printable(super().__str__())


class DataError(HeadwayError):
    """A data file or one of its lines cannot be used."""


class ConfigError(HeadwayError):
    """A setting or a model's config is unknown, contradictory or refused."""


class CheckpointError(HeadwayError):
    """A model or state file is damaged, incomplete, hostile or of a refused kind."""


class DiskError(HeadwayError):
    """A file or folder cannot be written."""


class TrainingError(HeadwayError):
    """Training cannot start or go on."""


class InputError(HeadwayError):
    """An input to a model cannot be used."""


def with_article(name: str) -> str:
    """The name with "a" or "an", by its first letter."""
    return f"{'an' if name[:1].lower() in tuple('aeiou') else 'a'} {name}"


def closest(name: str, known: Iterable[str], *, n: int = 1, cutoff: float = 0.6) -> list[str]:
    """Up to `n` of the known names that are most like `name`, whatever their case; most like first. A name read from a
    file may be of any type."""
    folded = {each.casefold(): each for each in known}
    return [folded[each] for each in difflib.get_close_matches(str(name).casefold(), folded, n, cutoff)]


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "", n: int = 1, cutoff: float = 0.6) -> str:
    """The question "did you mean 'x'?" for the end of a message; `otherwise` if no known name is like `name`."""
    close = closest(name, known, n=n, cutoff=cutoff)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else otherwise
