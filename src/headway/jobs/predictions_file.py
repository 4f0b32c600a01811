"""Predictions as a table beside the columns of the inputs: CSV, JSON lines or Parquet, by the suffix of the file.

Rows keep their order, and columns theirs; predictions are added at the end. The file is written as the inputs are
read and predicted, under another name until it is complete.
"""

from __future__ import annotations

import csv
import importlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.errors import ConfigError, InputError
from headway.files import atomic_write, disk_errors, is_present
from headway.jobs.inference import run
from headway.jobs.inputs import Record
from headway.printable import as_cell, finite

SUFFIXES = (".csv", ".jsonl", ".parquet")
CHUNK = 512  # rows that are read, predicted and written together

Write = Callable[[list[Record]], None]


def is_predictions_file(out: Path | None) -> bool:
    return out is not None and out.suffix.lower() in SUFFIXES


def write_predictions(
    bundle: Bundle,
    records: Iterable[tuple[Record, Any]],
    out: Path,
    *,
    columns: list[str] | None = None,
    is_main: bool = True,
    on_rows: Callable[[int], None] = lambda rows: None,
    **options: Any,
) -> tuple[int, list[str], int]:
    """Predicts the input of each record. (rows, names of the added columns, answers that do not match a constraint).
    `columns` are those of all records, if they are known not to be those of the first. Every process of a distributed
    run predicts its share; the main one writes."""
    refuse_present(out)
    with writer(out, columns) if is_main else _nothing() as write:
        return add_predictions(bundle, records, write, columns=columns, on_rows=on_rows, **options)


def refuse_present(out: Path) -> None:
    if is_present(out):
        raise InputError(f"--out {out}: there is such a file already; give another name, or remove it")


def add_predictions(
    bundle: Bundle,
    records: Iterable[tuple[Record, Any]],
    write: Write,
    *,
    columns: list[str] | None = None,
    on_rows: Callable[[int], None] = lambda rows: None,
    **options: Any,
) -> tuple[int, list[str], int]:
    """As `write_predictions`; `write` receives the rows."""
    kind, count, wrong, added = bundle.find_task().prediction_kind, 0, 0, list[str]()
    seed = options.pop("seed", None)
    for chunk in _chunks(records):
        inputs = [_one_input(bundle, given, count + number) for number, (_, given) in enumerate(chunk, 1)]
        seeded = {} if seed is None else {"seed": seed + count}
        answers = [answer for _, answer in run(bundle, inputs, **options, **seeded)]
        wrong += sum(map(kind.unmatched, answers))
        found = list(map(kind.columns, answers))
        if not count:
            taken = {*(columns or ()), *(name for record, _ in chunk for name in record)}
            names = {name: free_name(name, taken) for name in found[0]}
            added = list(names.values())
        rows = zip(chunk, found, strict=True)
        write([record | {names[name]: each.get(name) for name in names} for (record, _), each in rows])
        count += len(chunk)
        on_rows(count)
    if not count:
        raise InputError("there are no inputs, so there is nothing to predict")
    return count, added, wrong


def all_columns(records: Iterable[tuple[Record, Any]]) -> list[str]:
    """The columns of all records, in the order in which they first occur."""
    return list(dict.fromkeys(name for record, _ in records for name in record))


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name of a new column: with a number if the table has such a column already."""
    taken, number = set(taken), 1
    while (unique := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return unique


def _one_input(bundle: Bundle, given: Any, number: int) -> Any:
    if not isinstance(given, str):
        return given
    found = bundle.find_task().input_kind.parse_all(given)
    if len(found) != 1:
        raise InputError(f"input {number}: {given[:60]!r} stands for {len(found)} inputs; a row of a table has one")
    return found[0]


def _chunks(records: Iterable[tuple[Record, Any]]) -> Iterator[list[tuple[Record, Any]]]:
    iterator = iter(records)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


@contextmanager
def _nothing() -> Iterator[Write]:
    yield lambda rows: None


@contextmanager
def writer(out: Path, columns: list[str] | None) -> Iterator[Write]:
    """A function that appends rows to the file."""
    kind = {".csv": _csv, ".jsonl": _jsonl, ".parquet": _parquet}[out.suffix.lower()]
    with disk_errors(out, 0), atomic_write(out, new=True) as partial, kind(partial, columns) as write:
        yield write


@contextmanager
def _csv(path: Path, columns: list[str] | None) -> Iterator[Write]:
    """The columns are those given, else those of the first record; predictions come last. Lists and objects are JSON; a
    text that a spreadsheet would run as a formula gets an apostrophe in front."""
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        writer, names = csv.writer(file), list[str]()

        def write(rows: list[Record]) -> None:
            if not names:
                names.extend(dict.fromkeys([*(columns or ()), *rows[0]]))
                writer.writerow([as_cell(name) for name in names])
            _require_columns(rows, names)
            for row in rows:
                writer.writerow([_cell(row.get(name)) for name in names])

        yield write


def _require_columns(rows: list[Record], names: Iterable[str]) -> None:
    known = set(names)
    for row in rows:
        if unknown := [name for name in row if name not in known]:
            raise InputError(
                f"the column {unknown[0]!r:.80} is not in the first rows, which have the columns of the table; write "
                "JSON lines (--out with the suffix .jsonl)"
            )


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    return as_cell(value if isinstance(value, str | int | float) else _json(value))


def _json(value: Any) -> str:
    return json.dumps(finite(value), ensure_ascii=False, default=str)


@contextmanager
def _jsonl(path: Path, columns: list[str] | None) -> Iterator[Write]:
    # a character that UTF-8 does not have (half of a surrogate pair) is written as \ud800, its escape in JSON
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
        yield lambda rows: file.writelines(f"{_json(row)}\n" for row in rows)


@contextmanager
def _parquet(path: Path, columns: list[str] | None) -> Iterator[Write]:
    """The types of columns are those of the first rows; a column without values there is one of texts."""
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise ConfigError("writing Parquet needs pyarrow; install headway[parquet], or write .csv or .jsonl") from error
    opened: Any = None

    def write(rows: list[Record]) -> None:
        nonlocal opened
        try:
            if opened is None:
                names = dict.fromkeys([*(columns or ()), *(name for row in rows for name in row)])
                first = arrow.Table.from_pylist([{name: row.get(name) for name in names} for row in rows]).schema
                fields = [arrow.field(f.name, arrow.string()) if arrow.types.is_null(f.type) else f for f in first]
                opened = parquet.ParquetWriter(path, arrow.schema(fields))
            _require_columns(rows, opened.schema.names)
            opened.write_table(arrow.Table.from_pylist(rows, schema=opened.schema))
        except (arrow.ArrowInvalid, arrow.ArrowTypeError, UnicodeEncodeError) as error:
            raise InputError(
                f"the values of a column are not texts of UTF-8 or not of one type ({error}); write JSON lines (--out "
                "with the suffix .jsonl)"
            ) from error

    try:
        yield write
    finally:
        if opened is not None:
            opened.close()
