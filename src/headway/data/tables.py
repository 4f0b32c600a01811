"""Tables in memory: pandas and Polars data frames, Arrow tables, data sets of Hugging Face, lists of dicts and dicts of
columns. They are recognised by their methods, so none of those libraries is imported here.

Rows are numbered from 1 in place of lines; `DataFrame:3` is the third.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headway.data.row import kind
from headway.data.split import PART_NAMES
from headway.errors import DataError, InputError, with_article
from headway.files import BLAKE2B

ACCEPTED = (
    "give a file or folder, a pandas or Polars DataFrame, an Arrow table, a datasets.Dataset, a list of dicts, or a "
    "dict of columns"
)
Record = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """`index` has the labels of the rows of a pandas DataFrame; others are numbered from 1."""

    name: str
    records: Sequence[Record]
    index: Sequence[Any] | None = None

    def where(self, number: int) -> str:
        """The place of a row, counted from 0, in messages."""
        return f"{self.name}:{number + 1}" if self.index is None else f"{self.name}.loc[{self.index[number]!r}]"

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the content; the order of the columns does not matter."""
        hasher = BLAKE2B()
        for record in self.records:
            hasher.update(json.dumps(record, sort_keys=True, default=repr).encode() + b"\n")
        return hasher.hexdigest()

    def renamed(self, text: str, path: Path) -> str:
        """A message in which places in a file with the rows, a line each, are those of the table."""
        text = re.sub(rf"{re.escape(str(path))}:(\d+)", lambda found: self.where(int(found[1]) - 1), text)
        return text.replace(str(path), self.name)

    def json_lines(self) -> Iterator[str]:
        for number, record in enumerate(self.records):
            try:
                yield json.dumps(record) + "\n"
            except (TypeError, ValueError) as error:
                raise DataError(
                    f"{self.where(number)}: a value cannot be written as JSON ({error}); save the table to a file "
                    "(Parquet, …) and give that."
                ) from error


@dataclass(frozen=True)
class Tables:
    """The parts of a data set; `valid` and `test` if they are given."""

    train: Table
    valid: Table | None = None
    test: Table | None = None

    @property
    def parts(self) -> dict[str, Table]:
        return {name: table for name, table in vars(self).items() if isinstance(table, Table)}


def as_tables(data: Any, *, valid: Any = None) -> Tables | None:
    """The parts of data in memory; None for files, which are given by their names. InputError for anything else."""
    if isinstance(data, Tables):
        return data
    if isinstance(data, list | tuple) and not data:
        raise InputError(f"data: an empty {type(data).__name__}; leave it out for the built-in data")
    if is_files(data):
        if not is_files(valid):
            raise InputError(f"valid: {type(valid).__name__}, while the data are files; give both in the same way")
        return None
    parts = _parts(data)
    if valid is not None:
        if is_files(valid):
            given = with_article(type(data).__name__)
            raise InputError(f"valid: files, while the data are {given}; give both in the same way")
        parts["valid"] = _table(valid, name="valid")
    return Tables(**parts)


def is_files(data: Any) -> bool:
    """Whether data is given by names of files; None is the built-in data."""
    if data is None or isinstance(data, str | Path):
        return True
    return isinstance(data, list | tuple) and all(isinstance(each, str | Path) for each in data)


def _parts(data: Any) -> dict[str, Table]:
    """A table is the train part; a dict of tables (datasets.DatasetDict) has several."""
    if isinstance(data, Mapping) and data and all(map(_is_table, data.values())):
        found = {PART_NAMES.get(str(name).lower()): (name, table) for name, table in data.items()}
        if None in found or "train" not in found:
            raise InputError(f"the parts of the data are {', '.join(map(str, data))}; expected train, valid and test")
        return {str(part): _table(table, name=str(name)) for part, (name, table) in found.items()}
    return {"train": _table(data, name=type(data).__name__)}


def _is_table(value: Any) -> bool:
    """By its methods; a column, which has them too, has one dimension."""
    has_rows = any(hasattr(value, name) for name in ("to_dict", "to_dicts", "to_pylist"))
    return has_rows and len(getattr(value, "shape", ())) == 2


def _table(data: Any, *, name: str) -> Table:
    records = [{str(column): plain(value) for column, value in record.items()} for record in _records(data)]
    if not records:
        raise DataError(f"{name}: the table has no rows; give one with examples in it.")
    for column in dict.fromkeys(name for record in records for name in record):
        _fill_missing_texts(records, column)
    index = [plain(label) for label in data.index] if hasattr(data, "loc") and hasattr(data, "index") else None
    return Table(name, records, index)


def _fill_missing_texts(records: Sequence[dict[str, Any]], column: str) -> None:
    """In a column of texts a missing value is an empty text, as in a CSV file."""
    values = [record[column] for record in records if column in record]
    if {type(value) for value in values} == {str, type(None)}:
        for record in records:
            if record.get(column, "") is None:
                record[column] = ""


def _records(data: Any) -> Any:
    if hasattr(data, "collect") and hasattr(data, "lazy"):  # a LazyFrame
        data = data.collect()
    if hasattr(data, "features") and hasattr(data, "column_names"):  # datasets.Dataset
        return _with_class_names(data)
    if hasattr(data, "to_pylist"):  # Arrow
        return data.to_pylist()
    if hasattr(data, "to_dicts"):  # Polars
        return data.to_dicts()
    if hasattr(data, "to_dict") and hasattr(data, "columns"):  # pandas
        return data.to_dict("records")
    if isinstance(data, Mapping):
        return _from_columns(data)
    if isinstance(data, list | tuple):
        for number, record in enumerate(data, 1):
            if not isinstance(record, Mapping):
                where = f"{type(data).__name__}:{number}"
                raise InputError(f"{where}: expected a dict with named fields, found {kind(record)}; {ACCEPTED}")
        return data
    raise InputError(f"data: cannot read {type(data).__module__}.{type(data).__name__}; {ACCEPTED}")


def _from_columns(data: Mapping[Any, Any]) -> Iterator[Record]:
    for name, column in data.items():
        if isinstance(column, str | bytes) or not hasattr(column, "__len__") or not hasattr(column, "__iter__"):
            raise InputError(f"data: {name}: expected a column of values, found {kind(column)}; {ACCEPTED}")
    lengths = {str(name): len(column) for name, column in data.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"dict: the columns have different lengths: {lengths}.")
    return (dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True))


def _with_class_names(data: Any) -> Iterator[Record]:
    """The rows of a datasets.Dataset. The numbers of classes are replaced by their names."""
    names: dict[str, Sequence[str]] = {}
    for column, feature in dict(data.features or {}).items():
        inner: Any = getattr(feature, "feature", feature)  # of a list
        if hasattr(inner, "int2str"):
            names[column] = inner.names

    def named(value: Any, classes: Sequence[str]) -> Any:
        if isinstance(value, list):
            return [named(each, classes) for each in value]
        return classes[value] if isinstance(value, int) and 0 <= value < len(classes) else value

    for record in data:
        yield record | {column: named(record[column], classes) for column, classes in names.items()}


def plain(value: Any) -> Any:
    """A value as those that JSON has: NumPy's as Python's, a missing one (NaN, NaT, NA) as None."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    if type(value).__name__ in ("NAType", "NaTType"):
        return None
    return value.isoformat() if hasattr(value, "isoformat") else value
