"""Whether the first row of a table is a header: the evidence of its cells beside those below, as log odds.

A cell that a column of values, of few labels or of longer texts would hardly hold is evidence for a header; a value, or
a sentence, is evidence for data. Names that are usual for the fields of the task are evidence too, whatever is below.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from math import log
from statistics import median

from headway.data.columns import (
    PAIR_FIELDS,
    alternative_fields,
    are_column_names,
    is_language,
    matching_columns,
    names_images,
    pair_columns,
)

ENOUGH = 2.0  # log odds from which the row is a header
KNOWN = 3.0  # evidence of a usual name
VALUE, SENTENCE = -4.0, -3.0  # evidence of a number, and of the end of a sentence, in the first row
LONGEST_NAME, MOST_WORDS = 60, 8
PHRASE = 12  # characters from which a cell without spaces is a phrase: Chinese, Japanese and Thai have none


def has_header(top: Sequence[Sequence[str]], fields: Sequence[str], *, chosen: Mapping[str, str]) -> bool:
    """By the first rows of a table, the fields that are read and the columns that the user names."""
    first, rest = [cell.strip() for cell in top[0]], [cells for cells in top[1:] if len(cells) == len(top[0])]
    if any(column in top[0] for column in chosen.values() if not column.isdigit()):
        return True
    columns = [[cell.strip() for cell in column if cell.strip()] for column in zip(*rest, strict=True)]
    if any(names_images([cell]) for cell in first):
        return False
    if any(map(names_images, columns)):  # names of files below something else
        return True
    if len(set(first)) < len(first) or not all(map(_may_be_name, first)):
        return False
    if any(cell in column for cell, column in zip(first, columns, strict=False) if cell):
        return False
    evidence = [_beside(cell, column) for cell, column in zip(first, columns, strict=False) if cell and column]
    shortness = [_shortness(cell, column) for cell, column in zip(first, columns, strict=False) if cell]
    # texts of one row are short or long together, so shortness counts once
    return sum(evidence) + max(shortness, default=0.0) + _names(first, columns, fields) >= ENOUGH


def _may_be_name(cell: str) -> bool:
    return len(cell) <= LONGEST_NAME and len(cell.split()) <= MOST_WORDS and "\n" not in cell


def _beside(cell: str, column: Sequence[str]) -> float:
    """The evidence of a cell in the first row, given the cells below it."""
    count, values = len(column), 10 * sum(map(_is_value, column)) >= 9 * len(column)
    if _is_value(cell) and (values or not any(map(str.isalpha, cell))):
        return VALUE
    sentence = SENTENCE if re.search(r"[.!。！]$", cell) else 0.0
    if values:
        return 2 * log(count + 1) + sentence
    recurring = Counter(column)
    once = sum(number == 1 for number in recurring.values())
    return log((count + 1) / (once + 0.5)) + sentence  # Good and Turing: the share of labels that are new


def _shortness(cell: str, column: Sequence[str]) -> float:
    """The evidence of a cell that is shorter than every phrase below it; one that is long speaks for data."""
    if 2 * sum(map(_is_phrase, column)) <= len(column):
        return 0.0
    lengths = sorted(map(len, column))
    if len(cell) < lengths[0]:
        return min(log(len(column) + 1), ENOUGH) + (0.5 if 2 * len(cell) <= lengths[0] else 0.0)
    return -1.5 if len(cell) > median(lengths) else 0.0


def _names(first: Sequence[str], columns: Sequence[Sequence[str]], fields: Sequence[str]) -> float:
    """The evidence of usual names; such as are words of a text too only count above phrases."""
    named = alternative_fields(fields, first, {})
    pairs = any(pair[1] in fields for pair in PAIR_FIELDS)
    if any(matching_columns(name, first) for name in named) or (pairs and pair_columns(first)):
        return KNOWN
    phrases = [2 * sum(map(_is_phrase, column)) > len(column) for column in columns]
    if are_column_names(first, fields):
        return KNOWN if any(phrases) or any(re.search(r"[ _]", name) for name in first) else 0.0
    snake = any("_" in name for name in first) and not any(re.search(r"\s", name) for name in first)
    languages = len(first) > 1 and all(map(is_language, first))
    return KNOWN if phrases and all(phrases) and (snake or languages) else 0.0


def _is_value(cell: str) -> bool:
    """Whether a cell is a number, date, time, price, share or code: it has at least as many digits as letters."""
    digits = sum(map(str.isdigit, cell))
    return 0 < digits >= sum(map(str.isalpha, cell))


def _is_phrase(cell: str) -> bool:
    return " " in cell or len(cell) >= PHRASE
