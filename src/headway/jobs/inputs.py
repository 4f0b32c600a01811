"""The inputs of `run` from files: the lines of a text file, or the rows of a table as training reads them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from headway.bundle import Bundle
from headway.data import formats
from headway.data.columns import ALTERNATIVES, matching_columns, option_for
from headway.data.paths import as_folder, expand
from headway.data.read import detect_layout, make_row
from headway.data.row import Layout
from headway.data.sniff import is_parallel
from headway.data.split import DATA_SUFFIXES, bare_suffix, data_files
from headway.data.text_reader import read_lines
from headway.errors import DataError, InputError
from headway.jobs.columns import Columns, columns_for
from headway.jobs.documents import is_document, read_document, refuse_other
from headway.jobs.run_folder import PLAN, read_run_json
from headway.tasks.task import Task

TABLES = DATA_SUFFIXES - {".txt"}
SAMPLE = 50  # lines by which a text file with tabs is recognised as a table
INPUT = "input"  # column of an input that is not of a table
MORE = ("system", "input", "tools")  # fields that are read beside an instruction
TARGETS = ("response",)  # of the alternatives of an input

Record = dict[str, Any]  # column -> value as in the file
Paths = str | Path | Sequence[str | Path]


def read_inputs(
    paths: Paths, bundle: Bundle, *, columns: Columns | None = None, encoding: str | None = None
) -> list[Any]:
    """The inputs of the model's task in files: of each file, pattern, folder or zip archive in order. Columns of a
    table are found as for training: those given, those of the run that trained the model, or by name and content;
    columns with targets are left out."""
    return [given for _, given in read_records(paths, bundle, columns=columns, encoding=encoding)]


def read_records(
    paths: Paths, bundle: Bundle, *, columns: Columns | None = None, encoding: str | None = None
) -> Iterator[tuple[Record, Any]]:
    """(record, input) of each row, as it is read: the record has all columns of the file, which nothing but the columns
    of the input is checked of. A line of a text file is a record with one column, and so is a picture or a recording
    of a folder. The layouts of all files are detected before the first row is read."""
    parts = [_records(path, bundle, columns=columns, encoding=encoding) for path in expand(paths)]
    return chain.from_iterable(parts)


def refuse_file_names(texts: Iterable[str], task: Task) -> None:
    """Raises if a text for a task that reads texts is the name of a file: its content is meant."""
    if task.input_kind.is_file:
        return
    for text in texts:
        if Path(text).suffix and os.path.isfile(text):
            raise InputError(f"{text} is a file; read it with --file {text}")


def _records(
    path: Path, bundle: Bundle, *, columns: Columns | None, encoding: str | None
) -> Iterator[tuple[Record, Any]]:
    """Those of a file, a folder or an archive."""
    task, folder = bundle.find_task(), as_folder(path)
    if not folder.is_dir():
        return _file_records(path, bundle, columns=columns, encoding=encoding)
    files = _files(folder, task)
    if not files:
        return (({INPUT: str(each)}, each) for each in task.input_kind.parse_all(str(folder)))
    return chain.from_iterable([_file_records(file, bundle, columns=columns, encoding=encoding) for file in files])


def _files(folder: Path, task: Task) -> list[Path]:
    """The data files of a folder, in name order; none where the folder holds pictures or recordings."""
    files = data_files(folder)
    if task.input_kind.is_file:
        return [file for file in files if bare_suffix(file) in TABLES]
    if not files:
        raise InputError(
            f"{folder}: the folder has no data files; name files, or give a pattern such as --file '{folder}/*/*.csv'"
        )
    if is_parallel(files, task.fields):
        raise InputError(f"{folder}: has two parallel files; give the one with the inputs: --file {files[0]}")
    return files


def _file_records(
    path: Path, bundle: Bundle, *, columns: Columns | None, encoding: str | None
) -> Iterator[tuple[Record, Any]]:
    task = bundle.find_task()
    if not _is_table(path, task, columns=columns, encoding=encoding):
        if is_document(path):
            return (({INPUT: text}, text) for text in read_document(path, encoding=encoding).texts)
        return (({INPUT: line}, line) for _, line in read_lines(path, encoding=encoding))
    chosen, trained = _columns(bundle, columns)
    layout = _layout(path, task, columns=chosen, trained=trained, encoding=encoding)
    return _rows(path, task, layout, wanted={**trained, **chosen})


def _rows(path: Path, task: Task, found: Layout, *, wanted: Mapping[str, str]) -> Iterator[tuple[Record, Any]]:
    """The records of a table; only the fields of an input are converted. A cell of words that is one text is a text as
    on the command line, unless a column of tags says how it is divided."""
    needed = _fields_of_input(task)
    layout = replace(found, mapping={name: column for name, column in found.mapping.items() if name in needed})
    divided = "tags" in found.mapping and _is_named("tags", found, wanted)
    words = None if divided else layout.mapping.get("words")
    for number, record in formats.READERS[layout.format](formats.InputFile(path, layout)):
        whole = words is not None and isinstance(record.get(words), str)
        mapping = {"text": words} if words is not None and whole else layout.mapping
        row = make_row(record, mapping, where=f"{path}:{number}", folder=path.parent)
        alone = "text" in mapping and "text" not in task.input_kind.columns
        yield record, row.fields["text"] if alone else task.model_input(row)


def _fields_of_input(task: Task) -> set[str]:
    """The fields that an input may be made of."""
    columns, alone = task.input_kind.columns, task.input_kind.alone
    others = (*alternatives(columns), *task.optional_row_fields, *alone, *MORE)
    return {*columns, *others} - {*TARGETS}


def alternatives(fields: Iterable[str]) -> Iterator[str]:
    """The fields that may take the place of some of these."""
    return (name for field in fields for each in ALTERNATIVES.get(field, ()) for name in each.fields)


def _layout(
    path: Path, task: Task, *, columns: dict[str, str], trained: dict[str, str], encoding: str | None
) -> Layout:
    """How the file is read: with every field of the task, else with the fields of an input, or one that is enough of
    it. The first way in which every column is given or has a usual name, else the first that is possible."""
    first: Layout | None = None
    problem: DataError | None = None
    for fields, wanted in _attempts(task, columns=columns, trained=trained):
        try:
            found = detect_layout(path, fields, wanted, optional=task.optional_row_fields, encoding=encoding)
        except DataError as error:
            problem = problem if problem is not None and fields != task.input_kind.columns else error
            continue
        found = _with_more(found)
        if all(_is_named(name, found, wanted) for name in found.mapping):
            return found
        first = first or found
    if first is None:
        assert problem is not None
        raise problem
    return first


def _is_named(name: str, layout: Layout, wanted: Mapping[str, str]) -> bool:
    """Whether the column of a field is the one that was given, or has one of the field's usual names."""
    return layout.mapping[name] in (wanted.get(name), *matching_columns(name, layout.columns))


def _with_more(layout: Layout) -> Layout:
    """With the columns that are read beside an instruction."""
    mapping = dict(layout.mapping)
    for name in MORE if "instruction" in mapping else ():
        free = [column for column in layout.columns if column not in mapping.values()]
        if name not in mapping and (found := matching_columns(name, free)):
            mapping[name] = found[0]
    return replace(layout, mapping=mapping)


def _attempts(
    task: Task, *, columns: dict[str, str], trained: dict[str, str]
) -> Iterator[tuple[tuple[str, ...], dict[str, str]]]:
    """Fields to read, and the columns of some of them; a field that is enough is read alone if its column is given."""
    alone = [(name,) for name in task.input_kind.alone]
    given = [fields for fields in alone if fields[0] in columns]
    for fields in given or (task.row_fields, task.input_kind.columns, *alone):
        more = MORE if fields == ("instruction",) else ()
        known = {*fields, *alternatives(fields), *task.optional_row_fields, *more}
        for chosen in [trained, {}] if trained else [trained]:
            yield fields, {name: column for name, column in {**chosen, **columns}.items() if name in known}


def _is_table(path: Path, task: Task, *, columns: Columns | None, encoding: str | None) -> bool:
    """Raises if it is no file, or if columns are named of a file without columns."""
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    refuse_other(path)
    if is_table(path, task, encoding=encoding):
        return True
    if columns:
        option = option_for(next(iter(columns))).rstrip(" =")
        raise InputError(f"{path}: {option} names a column, but this file is read line by line")
    return False


def _columns(bundle: Bundle, columns: Columns | None) -> tuple[dict[str, str], dict[str, str]]:
    """field -> column, as given and as of the run that trained the model."""
    task = bundle.find_task()
    return columns_for(columns, task, also=task.input_kind.alone), _columns_of_run(bundle.folder)


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


def _columns_of_run(folder: Path | None) -> dict[str, str]:
    plan = None if folder is None else read_run_json(folder, PLAN)
    columns = None if plan is None else plan.get("columns")
    return dict(columns) if isinstance(columns, dict) else {}
