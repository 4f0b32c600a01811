"""Rows of an Excel workbook (.xlsx), by openpyxl. Of a formula, the value that was saved with it is read."""

from __future__ import annotations

import datetime
import importlib
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.data.paths import SheetPath
from headway.data.table_limits import try_table
from headway.data.text_reader import DEFAULT
from headway.errors import DataError, closest
from headway.files import open_file
from headway.preprocess.archive import refuse_bomb
from headway.printable import printable

MAX_ROWS = 1 << 20  # of a sheet in Excel
UNTRIED = 1 << 20  # bytes of XML from which openpyxl cannot make more than a gigabyte of objects
INSTALL = "reading Excel workbooks needs openpyxl: pip install 'headway[excel]'; or save the sheet as CSV (UTF-8)"


def sheet_name(path: Path) -> str:
    """The sheet that is read: the one that is named behind the workbook (`book.xlsx/May`), or else the first one."""
    with _workbook(path) as book:
        return str(_sheet(path, book).title)


def sheet_rows(path: Path, *, limit: int) -> Iterator[tuple[int, list[str]]]:
    """(row number, its cells as text up to the last that is filled); rows without a filled cell have none. A cell may
    be `limit` characters long."""
    with _workbook(path) as book:
        sheet = _sheet(path, book)
        sheet.reset_dimensions()  # as the file declares them, they may be wrong
        rows = enumerate(sheet.iter_rows(values_only=True), 1)
        while (row := _next(path, rows)) is not None:
            number, cells = row[0], [cell_text(value) for value in row[1]]
            if number > MAX_ROWS:
                raise DataError(f"{path}:{number}: a row beyond the last one of a sheet; the file is damaged.")
            if sum(map(len, cells)) > limit:
                raise DataError(f"{path}:{number}: the row is longer than {limit:,} characters; split the text.")
            while cells and not cells[-1].strip():
                cells.pop()
            yield number, cells


def cell_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    if isinstance(value, datetime.datetime) and value.time() == datetime.time():
        return value.date().isoformat()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _sheet(path: Path, book: Any) -> Any:
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    if not sheets:
        raise DataError(f"{path}: the workbook has no sheet with cells.")
    if not isinstance(path, SheetPath):
        return next(iter(sheets.values()))
    if path.name not in sheets:
        names = ", ".join(f'"{printable(name)}"' for name in sheets)
        near = closest(path.name, list(sheets))
        hint = f' Did you mean "{printable(near[0])}"?' if near else ""
        raise DataError(f"{path.parent}: there is no sheet {printable(path.name)!r}; its sheets are {names}.{hint}")
    return sheets[path.name]


@contextmanager
def _workbook(path: Path) -> Iterator[Any]:
    try:
        openpyxl = importlib.import_module("openpyxl")
    except ImportError as error:
        raise DataError(f"{path}: {INSTALL}.") from error
    with open_file(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                members = refuse_bomb(archive, path, packed=file.seek(0, 2))
            if sum(member.file_size for member in members) > UNTRIED and (
                damaged := try_table(path, "workbook", rows=1, limits=DEFAULT)
            ):
                raise _damaged(path, damaged)
            file.seek(0)
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
        except DataError:
            raise
        except Exception as error:  # openpyxl raises whatever its parser meets: KeyError, ValueError, ParseError, …
            raise _damaged(path, error) from error
        try:
            yield book
        finally:
            book.close()


def _next(path: Path, rows: Iterator[tuple[int, Any]]) -> tuple[int, Any] | None:
    try:
        return next(rows, None)
    except Exception as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception | str) -> DataError:
    reason = printable(str(error))[:200] or type(error).__name__
    return DataError(f"{path}: not an Excel workbook (.xlsx), or a damaged one ({reason}); save it again.")
