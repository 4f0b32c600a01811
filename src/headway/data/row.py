"""`Row` (a raw example), `Layout` (how a file is read), and the conversion of raw values to a row's fields."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.errors import DataError
from headway.printable import has_surrogate

DELIMITER_NAMES = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars", " ": "spaces"}


@dataclass(frozen=True, slots=True)
class Row:
    """One raw example and its location, `file:line`."""

    fields: dict[str, Any]
    where: str


class Skipped(Counter[str]):
    """How many lines, rows or files were not read, by kind; `places` has the locations of those that `add` counts."""

    def __init__(self, counts: Mapping[str, int] | None = None) -> None:
        super().__init__(counts or {})
        self.places: dict[str, list[str]] = dict(getattr(counts, "places", {}))

    def add(self, kind: str, where: str) -> None:
        self[kind] += 1
        self.places.setdefault(kind, []).append(where)

    def __add__(self, other: Mapping[str, int]) -> Skipped:  # type: ignore[override]
        out = Skipped(self)
        out.update(other)
        for name, places in getattr(other, "places", {}).items():
            out.places[name] = [*out.places.get(name, []), *places]
        return out


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file is read; `str(layout)` describes it in one line."""

    format: str
    mapping: Mapping[str, str] = field(default_factory=dict)  # field -> column name, or its number from 1
    columns: tuple[str, ...] = ()
    delimiter: str | None = None
    header: bool = False
    encoding: str = "utf-8"
    unused: tuple[str, ...] = ()  # columns that hold texts and are mapped to no field
    lists: bool = False  # labels are lists, so an empty one is a list without labels; else it is missing

    def __str__(self) -> str:
        parts = [self.format]
        if self.delimiter is not None:
            parts.append(f"separated by {DELIMITER_NAMES.get(self.delimiter, repr(self.delimiter))}")
        if self.format in ("table", "Excel"):
            parts.append("with a header" if self.header else "no header")
        parts.append(self.encoding)
        named = self.header or not all(column.isdigit() for column in self.mapping.values())
        pairs = (f"{name} = {column if named else f'column {column}'}" for name, column in self.mapping.items())
        return ", ".join(parts) + (": " + ", ".join(pairs) if self.mapping else "")


def kind(value: Any) -> str:
    """A value's type in plain words, for messages."""
    names = {str: "text", bool: "true/false", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "null" if value is None else names.get(type(value), type(value).__name__)


def convert(name: str, value: Any, *, where: str, folder: Path = Path()) -> dict[str, Any]:
    """A raw value as the field (or fields) a task expects; DataError names `file:line: field` of a wrong type. Names of
    files are relative to `folder`."""
    if name in FILE_FIELDS:
        return {name: _file(name, value, where=where, folder=folder)}
    if name in ("words", "tags"):
        return {name: _strings(name, value, where=where)}
    if name == "answers":
        return {name: _answers(value, where=where)}
    if name == "label":
        several = isinstance(value, list)
        return {name: [_label(item, where=where) for item in value] if several else _label(value, where=where)}
    if name == "target" and isinstance(value, list):
        alternatives = _strings(name, value, where=where)
        if not alternatives:
            raise DataError(f"{where}: {name}: the list is empty; give at least one text.")
        return {name: alternatives[0], "targets": alternatives}
    if name in TEXT_FIELDS:
        if isinstance(value, list):
            return {name: " ".join(_strings(name, value, where=where))}
        return {name: _text(name, value, where=where)}
    return {name: value}


TEXT_FIELDS = ("text", "text_pair", "source", "target", "question", "context", "a", "b", "caption", "instruction",
               "input", "response", "system")  # fmt: skip
MISSING_FIELDS = ("tools",)  # a row may lack them
FILE_FIELDS = ("image", "audio")  # a table has the name of a file, or (in Parquet) its content


def _file(name: str, value: Any, *, where: str, folder: Path) -> Path | bytes:
    if isinstance(value, dict) and (value.get("bytes") or value.get("path")):
        value = value.get("bytes") or value["path"]
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise DataError(f"{where}: {name}: expected the path of a file, found {kind(value)} ({value!r:.80}).")
    if re.match(r"\w+://", value):
        raise DataError(f"{where}: {name}: {value[:120]!r} is an address; download the files and name them.")
    file = folder / value.strip()
    if not _is_file(file) and "\\" in value:  # written on Windows
        file = folder / value.strip().replace("\\", "/")
    if not _is_file(file):
        raise DataError(f"{where}: {name}: {file}: no such file (paths are relative to the table's folder).")
    return file


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # such as a name that is too long
        return False


def _text(name: str, value: Any, *, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(f"{where}: {name}: expected text, found {kind(value)}.")
    if has_surrogate(value):
        raise DataError(
            f"{where}: {name}: contains half of a surrogate pair (\\ud8xx), which is not a character; remove it."
        )
    return value


MISSING = {"", "nan", "null", "none", "n/a", "na", "?"}  # how tools write a missing value
UNLABELLED = "rows without a label"


def is_unlabelled(row: Row) -> bool:
    """Whether a row has a column of labels and none in it."""
    label = row.fields.get("label", row)
    return isinstance(label, str) and label.strip().casefold() in ("", "nan")


def _label(value: Any, *, where: str) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        if isinstance(value, float) and not math.isfinite(value):
            raise DataError(f"{where}: label: {value} is not a label; give the example one, or remove it.")
        return str(value)
    return _text("label", value, where=where)


def _strings(name: str, value: Any, *, where: str) -> list[str]:
    if isinstance(value, str):
        return _text(name, value, where=where).split()
    if not isinstance(value, list):
        raise DataError(f"{where}: {name}: expected a list of texts, found {kind(value)}.")
    if name == "tags":
        return [_label(item, where=where) for item in value]
    return [_text(name, item, where=where) for item in value]


def _answers(value: Any, *, where: str) -> list[tuple[str, int]]:
    """Pairs (text, start) from `[{"text": …, "answer_start": …}]`, `{"text": […], "answer_start": […]}` or pairs."""
    if isinstance(value, dict) and isinstance(value.get("text"), list) and isinstance(value.get("answer_start"), list):
        pairs = list(zip(value["text"], value["answer_start"], strict=False))
        if len(value["text"]) != len(value["answer_start"]):
            raise DataError(
                f"{where}: answers: {len(value['text'])} texts but {len(value['answer_start'])} starts; "
                "give each text one."
            )
    elif isinstance(value, list):
        pairs = [(item.get("text"), item.get("answer_start")) if isinstance(item, dict) else item for item in value]
    else:
        raise DataError(
            f"{where}: answers: expected a list of answers with text and answer_start, found {kind(value)}."
        )
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and type(pair[1]) is int):
            raise DataError(f"{where}: answers: give each a text and a whole number answer_start; found {pair!r:.80}.")
        _text("answers", pair[0], where=where)
    return [(text, start) for text, start in pairs]
