"""The inputs of `run` from a file: the lines of a text file, or the rows of a table as training reads them."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.data.read import read
from headway.data.row import Row
from headway.data.split import DATA_SUFFIXES, bare_suffix
from headway.data.text_reader import read_lines
from headway.errors import DataError, InputError
from headway.jobs.columns import Columns, columns_for
from headway.jobs.run_folder import PLAN, read_run_json
from headway.tasks.task import Task

TABLES = DATA_SUFFIXES - {".txt"}
SAMPLE = 50  # lines by which a text file with tabs is recognised as a table


def read_inputs(
    path: Path, bundle: Bundle, *, columns: Columns | None = None, encoding: str | None = None
) -> list[Any]:
    """The inputs of the model's task in a file. Columns of a table are found as for training: those given, those of the
    run that trained the model, or by name and content; columns with targets are left out."""
    if not path.is_file():
        raise InputError(f"{path}: {'a folder; give a file' if path.is_dir() else 'no such file'}")
    task = bundle.find_task()
    if not is_table(path, task, encoding=encoding):
        if columns:
            raise InputError(f"{path}: --{next(iter(columns))} names a column, but this file is read line by line")
        return [line for _, line in read_lines(path, encoding=encoding)]
    also = ("text",) if takes_texts(task) else ()
    chosen = columns_for(columns, task, also=also)
    rows = _rows(path, task, columns=chosen, trained=_columns_of_run(bundle.folder), encoding=encoding)
    single = all(name in row.fields for row in rows for name in task.input_fields)
    return [task.model_input(row) if single else row.fields["text"] for row in rows]


def is_table(path: Path, task: Task, *, encoding: str | None) -> bool:
    """By its suffix; a text file is one if the task has several fields and every line has a tab."""
    if bare_suffix(path) in TABLES:
        return True
    if not task.reads_text:
        return False
    lines = [line for _, line in islice(read_lines(path, encoding=encoding), SAMPLE)]
    return len(task.fields) > 1 and not task.running_text and bool(lines) and all("\t" in line for line in lines)


def takes_texts(task: Task) -> bool:
    """Whether an input may be one text."""
    return task.input_fields in (("text",), ("a", "b"))


def _rows(
    path: Path, task: Task, *, columns: dict[str, str], trained: dict[str, str], encoding: str | None
) -> list[Row]:
    """With every field of the task, else with the fields of an input alone; a task that takes a text or a pair of texts
    (embed) also reads a table of texts."""
    attempts = [(fields, chosen) for fields in (task.row_fields, task.input_fields) for chosen in (trained, {})]
    attempts += [(("text",), {})] if takes_texts(task) else []
    problem: DataError | None = None
    for fields, chosen in attempts:
        optional = task.optional_row_fields
        wanted = {name: column for name, column in {**chosen, **columns}.items() if name in (*fields, *optional)}
        try:
            return list(read(path, fields=fields, optional=optional, columns=wanted, encoding=encoding))
        except DataError as error:
            problem = problem if problem is not None and fields != task.input_fields else error
    assert problem is not None
    raise problem


def _columns_of_run(folder: Path | None) -> dict[str, str]:
    plan = None if folder is None else read_run_json(folder, PLAN)
    columns = None if plan is None else plan.get("columns")
    return dict(columns) if isinstance(columns, dict) else {}
