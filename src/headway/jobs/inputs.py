"""The inputs of `run` from a file: the lines of a text file, or the rows of a table as training reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.data import formats
from headway.data.paths import data_path
from headway.data.read import detect_layout, make_row, read
from headway.data.row import Layout, Row
from headway.data.split import DATA_SUFFIXES, bare_suffix, find_parts
from headway.data.text_reader import read_lines
from headway.errors import DataError, InputError
from headway.jobs.columns import Columns, columns_for
from headway.jobs.run_folder import PLAN, read_run_json
from headway.tasks.task import Task

TABLES = DATA_SUFFIXES - {".txt"}
SAMPLE = 50  # lines by which a text file with tabs is recognised as a table
INPUT = "input"  # column of an input that is not of a table

Record = dict[str, Any]  # column -> value as in the file


def read_inputs(
    path: Path, bundle: Bundle, *, columns: Columns | None = None, encoding: str | None = None
) -> list[Any]:
    """The inputs of the model's task in a file. Columns of a table are found as for training: those given, those of the
    run that trained the model, or by name and content; columns with targets are left out."""
    path, task = data_path(path), bundle.find_task()
    if not _is_table(path, task, columns=columns, encoding=encoding):
        return [line for _, line in read_lines(path, encoding=encoding)]
    chosen, trained = _columns(bundle, columns)
    rows = _rows(path, task, columns=chosen, trained=trained, encoding=encoding)
    single = all(name in row.fields for row in rows for name in task.input_fields)
    return [task.model_input(row) if single else row.fields["text"] for row in rows]


def read_records(
    path: Path, bundle: Bundle, *, columns: Columns | None = None, encoding: str | None = None
) -> Iterator[tuple[Record, Any]]:
    """(record, input) of each row of a file, as it is read: the record has all columns of the file, which nothing but
    the columns of the input is checked of. A line of a text file is a record with one column."""
    path, task = data_path(path), bundle.find_task()
    if not _is_table(path, task, columns=columns, encoding=encoding):
        return (({INPUT: line}, line) for _, line in read_lines(path, encoding=encoding))
    chosen, trained = _columns(bundle, columns)
    layout = _layout(path, task, columns=chosen, trained=trained, encoding=encoding)
    return _records(path, task, layout)


def _records(path: Path, task: Task, layout: Layout) -> Iterator[tuple[Record, Any]]:
    single = all(name in layout.mapping for name in task.input_fields)
    for file in find_parts(path).train:
        for number, record in formats.READERS[layout.format](formats.InputFile(file, layout)):
            row = make_row(record, layout.mapping, where=f"{file}:{number}", folder=file.parent)
            yield record, task.model_input(row) if single else row.fields["text"]


def _layout(
    path: Path, task: Task, *, columns: dict[str, str], trained: dict[str, str], encoding: str | None
) -> Layout:
    """How the file is read, with the fields of an input alone."""
    problem: DataError | None = None
    for fields, wanted in _attempts(task, columns=columns, trained=trained):
        try:
            found = detect_layout(path, fields, wanted, optional=task.optional_row_fields, encoding=encoding)
        except DataError as error:
            problem = problem if problem is not None and fields != task.input_fields else error
            continue
        needed = {*task.input_fields, *task.optional_row_fields, *(("text",) if fields == ("text",) else ())}
        return replace(found, mapping={name: column for name, column in found.mapping.items() if name in needed})
    assert problem is not None
    raise problem


def _is_table(path: Path, task: Task, *, columns: Columns | None, encoding: str | None) -> bool:
    """Raises if it is no file, or if columns are named of a file without columns."""
    if not path.is_file():
        raise InputError(f"{path}: {'a folder; give a file' if path.is_dir() else 'no such file'}")
    if is_table(path, task, encoding=encoding):
        return True
    if columns:
        raise InputError(f"{path}: --{next(iter(columns))} names a column, but this file is read line by line")
    return False


def _columns(bundle: Bundle, columns: Columns | None) -> tuple[dict[str, str], dict[str, str]]:
    """field -> column, as given and as of the run that trained the model."""
    task = bundle.find_task()
    also = ("text",) if takes_texts(task) else ()
    return columns_for(columns, task, also=also), _columns_of_run(bundle.folder)


def is_table(path: Path, task: Task, *, encoding: str | None) -> bool:
    """By its suffix; a text file is one if the task has several fields and every line has a tab, or a label as fastText
    writes it."""
    if bare_suffix(path) in TABLES:
        return True
    if not task.reads_text:
        return False
    lines = [line for _, line in islice(read_lines(path, encoding=encoding), SAMPLE)]
    filled = [line for line in lines if line.strip()]
    if filled and "label" in task.fields and all(line.lstrip().startswith(formats.FASTTEXT) for line in filled):
        return True
    return len(task.fields) > 1 and not task.running_text and bool(lines) and all("\t" in line for line in lines)


def takes_texts(task: Task) -> bool:
    """Whether an input may be one text."""
    return task.input_fields in (("text",), ("a", "b"))


def _rows(
    path: Path, task: Task, *, columns: dict[str, str], trained: dict[str, str], encoding: str | None
) -> list[Row]:
    """With every field of the task, else with the fields of an input alone; a task that takes a text or a pair of texts
    (embed) also reads a table of texts."""
    problem: DataError | None = None
    for fields, wanted in _attempts(task, columns=columns, trained=trained):
        optional = task.optional_row_fields
        try:
            return list(read(path, fields=fields, optional=optional, columns=wanted, encoding=encoding))
        except DataError as error:
            problem = problem if problem is not None and fields != task.input_fields else error
    assert problem is not None
    raise problem


def _attempts(
    task: Task, *, columns: dict[str, str], trained: dict[str, str]
) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Fields to read, and the columns of some of them."""
    attempts = [(fields, chosen) for fields in (task.row_fields, task.input_fields) for chosen in (trained, {})]
    attempts += [(("text",), {})] if takes_texts(task) else []
    for fields, chosen in attempts:
        known = (*fields, *task.optional_row_fields)
        yield fields, {name: column for name, column in {**chosen, **columns}.items() if name in known}


def _columns_of_run(folder: Path | None) -> dict[str, str]:
    plan = None if folder is None else read_run_json(folder, PLAN)
    columns = None if plan is None else plan.get("columns")
    return dict(columns) if isinstance(columns, dict) else {}
