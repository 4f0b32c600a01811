"""What the labels of a data set are: one label, a number, or a list of labels. The detection is conservative: where
numbers or separators could also be names of labels, they are labels."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from headway.data.check import MISSING
from headway.errors import DataError

Kind = Literal["labels", "regression", "multilabel"]
Label = str | tuple[str, ...]  # a tuple was a list in the data
Found = Mapping[Label, tuple[int, str]]  # label -> its count and first location

DELIMITERS = (";", "|", ",")
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
DECIMAL_COMMA = re.compile(r"[+-]?\d+(,\d+)?")
BRACKETS = re.compile(r"\[.*\]", re.S)
MANY = 50  # different whole numbers, above which they are quantities
RARE = 10  # different whole numbers, from which they are quantities if they hardly recur
ALMOST = 0.95  # share of numbers from which another value is a mistake
LONGEST_LABEL = 60  # characters of a label in a list


@dataclass(frozen=True)
class Detected:
    kind: Kind
    delimiter: str = ""  # between the labels of a list that is written as a text


def parse_number(text: str) -> float | None:
    """The finite number that a text is; None if it is none."""
    if NUMBER.fullmatch(text.strip()) is None:
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


def detect(found: Found) -> Detected:
    """The kind of the labels of a data set."""
    if any(isinstance(label, tuple) for label in found):
        _refuse_lists_of_numbers(found)
        return Detected("multilabel")
    texts = {label: at for label, at in found.items() if isinstance(label, str)}
    filled = [label for label in texts if label.strip()]
    if filled and all(BRACKETS.fullmatch(label.strip()) for label in filled):
        return Detected("multilabel")
    if _is_regression(texts):
        return Detected("regression")
    _refuse_decimal_comma(texts)
    for delimiter in DELIMITERS:
        if _is_list(texts, delimiter):
            return Detected("multilabel", delimiter)
    return Detected("labels")


def best_delimiter(found: Found) -> str:
    """The delimiter in most of the labels; none if no label has one."""
    counts = Counter({one: sum(isinstance(label, str) and one in label for label in found) for one in DELIMITERS})
    delimiter, count = counts.most_common(1)[0]
    return delimiter if count else ""


def _is_regression(texts: Mapping[str, tuple[int, str]]) -> bool:
    """Whether the labels are quantities: fractions, or many different whole numbers that are not numbers of classes."""
    numbers = {text: value for text in texts if (value := parse_number(text)) is not None and not _is_code(text)}
    if not _are_quantities(numbers, texts):
        return False
    others = [text for text in texts if text not in numbers]
    total, other = sum(count for count, _ in texts.values()), sum(texts[text][0] for text in others)
    if other > (1 - ALMOST) * total:
        return False
    if others:
        missing = "is missing" if others[0].strip().casefold() in MISSING else f"is {others[0]!r}, which is no number"
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


def _refuse_decimal_comma(texts: Mapping[str, tuple[int, str]]) -> None:
    with_comma = [text for text in texts if "," in text]
    if len(with_comma) > 2 and all(DECIMAL_COMMA.fullmatch(text.strip()) for text in texts):
        text = with_comma[0]
        raise DataError(
            f"{texts[text][1]}: label: {text!r} may be a number with a decimal comma, or two labels. Write numbers "
            "with a point; or set task.kind=multilabel, or task.kind=labels"
        )


def _is_list(texts: Mapping[str, tuple[int, str]], delimiter: str) -> bool:
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
