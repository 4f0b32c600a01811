"""What the labels of a data set are: one label, a number, or a list of labels. The detection is conservative: where
numbers or separators could also be names of labels, they are labels."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from headway.data.row import MISSING
from headway.errors import DataError

Kind = Literal["labels", "regression", "multilabel"]
Label = str | tuple[str, ...]  # a tuple was a list in the data
Found = Mapping[Label, tuple[int, str]]  # label -> its count and first location

DELIMITERS = (";", "|", ",")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
# with a mark of decimals that is given; the other mark may separate groups of three digits
MARKED = {
    ",": re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(\.\d{3})+)?(,\d*)?"),
    ".": re.compile(r"[+-]?(\d+|[1-9]\d{0,2}(,\d{3})+)?(\.\d*)?([eE][+-]?\d+)?"),
}
GROUP = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")  # 1,234: a thousand, or one and a fraction
BRACKETS = re.compile(r"\[.*\]", re.S)
MANY = 50  # different whole numbers, above which they are quantities
RARE = 10  # different whole numbers, from which they are quantities if they hardly recur
ALMOST = 0.95  # share of numbers from which another value is a mistake
SHOWN = 3  # places in a message
LONGEST_LABEL = 60  # characters of a label in a list


@dataclass(frozen=True)
class Detected:
    kind: Kind
    delimiter: str = ""  # between the labels of a list that is written as a text
    decimal: str = ""  # the mark of decimals; "": a point, without groups of digits


def parse_number(text: str, decimal: str = "") -> float | None:
    """The finite number that a text is; None if it is not one."""
    text = text.strip()
    if decimal:
        if MARKED[decimal].fullmatch(text) is None:
            return None
        text = text.replace("." if decimal == "," else ",", "").replace(",", ".")
    if NUMBER.fullmatch(text) is None:
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def split_labels(label: str | list[str] | Label, delimiter: str) -> list[str]:
    """The labels of a list, in order, each once. A list may be written as JSON, as in Python, or with a delimiter."""
    if isinstance(label, str):
        label = _bracketed(label) if BRACKETS.fullmatch(label.strip()) else _split(label, delimiter)
    return list(dict.fromkeys(part.strip() for part in label if part.strip()))


def _split(text: str, delimiter: str) -> list[str]:
    return text.split(delimiter) if delimiter else [text]


def _bracketed(text: str) -> list[str]:
    inner = text.strip()[1:-1]
    try:
        items = json.loads(f"[{inner}]")
    except (json.JSONDecodeError, RecursionError):
        items = re.findall(r"'([^']*)'|\"([^\"]*)\"|([^\s,'\"]+)", inner)
        return [next((part for part in item if part), "") for item in items]
    return [item if isinstance(item, str) else json.dumps(item) for item in items]


def detect(found: Found, *, decimal: str = "") -> Detected:
    """The kind of the labels of a data set. `decimal` is the mark of decimals, if it is given."""
    if any(isinstance(label, tuple) for label in found):
        _refuse_lists_of_numbers(found)
        return Detected("multilabel")
    texts = {label: at for label, at in found.items() if isinstance(label, str)}
    if _are_bracketed(texts):
        return Detected("multilabel")
    mark = decimal or decimal_mark(found)
    if _is_regression(texts, mark):
        return Detected("regression", decimal=mark)
    delimiter = next((mark for mark in DELIMITERS if _is_list(texts, mark)), "")
    return Detected("multilabel", delimiter) if delimiter else Detected("labels")


def are_lists(labels: Collection[str]) -> bool:
    """Whether labels that are texts are clearly lists, and not numbers."""
    if sum(map(_is_number, labels)) > len(labels) / 2:
        return False
    return _are_bracketed(labels) or any(_is_list(labels, delimiter) for delimiter in DELIMITERS)


def _are_bracketed(labels: Iterable[str]) -> bool:
    filled = [label for label in labels if label.strip()]
    return bool(filled) and all(BRACKETS.fullmatch(label.strip()) for label in filled)


def decimal_mark(found: Found) -> str:
    """The mark of decimals if nearly all labels are numbers with commas; else "". Numbers of both kinds, and such that
    may be of either, are refused."""
    texts = {label: at for label, at in found.items() if isinstance(label, str)}
    numbers = [text for text in texts if _is_number(text)]
    total = sum(count for count, _ in texts.values())
    if not any("," in text for text in numbers) or sum(texts[text][0] for text in numbers) < ALMOST * total:
        return ""
    unclear = [text for text in numbers if GROUP.fullmatch(text.strip()) and "," in text]
    commas = [text for text in numbers if "," in text and text not in unclear and parse_number(text, ".") is None]
    points = [text for text in numbers if "." in text and parse_number(text, ".") is not None]
    grouped = [text for text in numbers if "," in text and text not in unclear and text not in commas]
    if (points and commas) or (points and unclear and not grouped):
        raise DataError(
            f"{_places(points, texts)}: label: decimals with a point, and {_places(commas or unclear, texts)} with a "
            'comma. Write all of them alike; or name the mark of decimals (--decimal "," or --decimal "."), and the '
            "other one separates thousands; or set task.kind=labels"
        )
    if unclear and not (commas or grouped):
        raise DataError(
            f"{_places(unclear, texts)}: label: a comma before three digits, which may separate thousands or decimals. "
            'Say which: --decimal "," or --decimal "."; or set task.kind=labels'
        )
    return "," if commas else "."


def _is_number(text: str) -> bool:
    return any(parse_number(text, mark) is not None for mark in MARKED)


def _places(texts: Sequence[str], at: Mapping[str, tuple[int, str]]) -> str:
    """The first places with their values."""
    more = f" and {len(texts) - SHOWN:,} more" if len(texts) > SHOWN else ""
    return ", ".join(f"{at[text][1]} ({text!r:.30})" for text in texts[:SHOWN]) + more


def best_delimiter(found: Found) -> str:
    """The delimiter in most of the labels; none if no label has one."""
    counts = Counter({one: sum(isinstance(label, str) and one in label for label in found) for one in DELIMITERS})
    delimiter, count = counts.most_common(1)[0]
    return delimiter if count else ""


def _is_regression(texts: Mapping[str, tuple[int, str]], decimal: str) -> bool:
    """Whether the labels are quantities: fractions, or many different whole numbers that are not numbers of classes."""
    read = {text: parse_number(text, decimal) for text in texts if not _is_code(text)}
    numbers = {text: value for text, value in read.items() if value is not None}
    if not _are_quantities(numbers, texts):
        return False
    others = [text for text in texts if text not in numbers]
    total, other = sum(count for count, _ in texts.values()), sum(texts[text][0] for text in others)
    if other > (1 - ALMOST) * total:
        return False
    if others:
        absent = others[0].strip().casefold() in MISSING
        missing = "is missing" if absent else f"is {others[0]!r}, which is not a number"
        raise DataError(
            f"{texts[others[0]][1]}: label: it {missing}, while {total - other:,} of {total:,} labels are numbers. "
            "Give the example a number, or remove it; or set task.kind=labels to read all of them as labels"
        )
    return True


def _are_quantities(numbers: Mapping[str, float], texts: Mapping[str, tuple[int, str]]) -> bool:
    values = set(numbers.values())
    if len(values) <= 2:
        return False
    if any(value != int(value) for value in values):
        return True
    if min(values) in (0, 1) and max(values) - min(values) == len(values) - 1:  # 0, 1, 2, …: numbers of classes
        return False
    rows = sum(texts[text][0] for text in numbers)
    return len(values) > MANY or (len(values) >= RARE and len(values) > rows / 2)


def _is_code(text: str) -> bool:
    """Whether digits are written with zeros in front, as codes and identifiers are."""
    return re.match(r"[+-]?0\d", text.strip()) is not None


def _refuse_lists_of_numbers(found: Found) -> None:
    for label, (_, where) in found.items():
        parts = [parse_number(part) for part in label] if isinstance(label, tuple) else []
        if any(part is not None and part != int(part) for part in parts):
            raise DataError(
                f"{where}: label: a list of numbers; give one number (regression), or a list of names (multilabel)"
            )


def _is_list(texts: Iterable[str], delimiter: str) -> bool:
    """Whether the labels are clearly lists: their parts are short, recur in other lists, and vary in number."""
    lists = {text: split_labels(text, delimiter) for text in texts if text.strip()}
    several = [parts for parts in lists.values() if len(parts) > 1]
    if len(several) < 2 or len({len(parts) for parts in lists.values()}) < 2:
        return False
    uses = Counter(part for parts in lists.values() for part in parts)
    recurring = [uses[part] > 1 for part in {part for parts in several for part in parts}]
    return (
        len(uses) < len(lists)
        and max(map(len, uses)) <= LONGEST_LABEL
        and 2 * sum(recurring) >= len(recurring)
        and not all(parse_number(part) is not None and float(part) % 1 for part in uses)
    )
