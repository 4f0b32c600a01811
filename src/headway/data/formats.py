"""One reader per file format. Each yields (line number, record); a record is column -> raw value.

Columns are a header's names, a JSON object's keys, or numbers from 1. In tab-separated files quotes are plain
characters, as in the format's registration with IANA; in other tables they quote.
"""

from __future__ import annotations

import csv
import importlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.data.conll import conll
from headway.data.input_file import InputFile, Record
from headway.data.json_stream import parse
from headway.data.row import Layout, kind
from headway.data.table_limits import refuse_ratio, try_table
from headway.data.text_reader import DEFAULT, ReadLimits
from headway.data.workbook import sheet_rows
from headway.errors import DataError
from headway.files import open_file
from headway.printable import printable

FASTTEXT = "__label__"  # in front of each label
PARQUET_ROWS, PARQUET_BYTES = 256, 64 << 20  # decoded at once, at most
VALUE_BYTES = 8  # of memory for any value, also an empty one, which a file may only count


def table(file: InputFile) -> Iterator[Record]:
    """CSV, TSV and similar: one record per row, all rows with the same number of columns."""
    layout, width = file.layout, len(file.layout.columns)
    header, columns = layout.header, layout.columns
    for number, cells in _rows(file):
        if not any(cell.strip() for cell in cells):
            file.skipped["blank lines"] += 1
            continue
        if header:
            if not (columns := _columns_of_header(cells, layout)):
                raise DataError(f"{file.path}:{number}: the header differs from the first file's: {cells!r:.200}.")
            header, width = False, len(columns)
            continue
        cells = padded(cells, width, layout)
        if len(cells) != width:
            raise DataError(
                f"{file.path}:{number}: {len(cells)} columns where {width} were expected. "
                "A separator inside a text must be quoted, or the line is damaged."
            )
        yield number, dict(zip(columns, cells, strict=True))


def _columns_of_header(cells: Sequence[str], layout: Layout) -> tuple[str, ...]:
    """The columns of a file. Several files may have them in another order, and other columns beside those that are
    read; empty if one that is read is missing."""
    names = column_names(cells, len(layout.columns), layout)
    return names if set(layout.mapping.values()) <= set(names) and len(set(names)) == len(names) else ()


def column_names(header: Sequence[str], width: int, layout: Layout) -> tuple[str, ...]:
    """The names in a header. In a workbook a column without one has its number."""
    if layout.format != "Excel":
        return tuple(header)
    return tuple(name.strip() or str(number) for number, name in enumerate(padded(list(header), width, layout), 1))


def padded(cells: list[str], width: int, layout: Layout) -> list[str]:
    """In a workbook a row ends with its last cell that is filled."""
    return cells + [""] * (width - len(cells)) if layout.format == "Excel" else cells


def split_rows(path: Path, layout: Layout, *, limits: ReadLimits = DEFAULT) -> Iterator[tuple[int, list[str]]]:
    """The raw rows of a table before its columns are known."""
    return _rows(InputFile(path, layout, limits))


def _rows(file: InputFile) -> Iterator[tuple[int, list[str]]]:
    if file.layout.format == "Excel":
        yield from sheet_rows(file.path, limit=file.limits.line_bytes)
        return
    delimiter = file.layout.delimiter or ","
    if delimiter == "\t":
        yield from ((number, line.split("\t")) for number, line in file.lines())
        return
    csv.field_size_limit(max(csv.field_size_limit(), file.limits.line_bytes))
    record: list[tuple[int, str]] = []  # the lines of the current record, for error messages

    def feed() -> Iterator[str]:
        size = 0
        for number, line in file.lines():
            size = size + len(line) if record else len(line)
            record.append((number, line))
            if size > file.limits.line_bytes:
                raise csv.Error(f"a record longer than {file.limits.line_bytes:,} bytes")
            yield line + "\n"

    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if "new-line" in str(error):
                raise DataError(
                    f"{file.path}:{record[-1][0]}: a carriage return inside a cell that is not quoted. "
                    "Quote the cell, or remove the character."
                ) from error
            number = _open_quote(record, delimiter)
            raise DataError(
                f"{file.path}:{number}: a quote opened here is never closed properly ({error}). "
                'Close it, or double it ("") if it belongs to the text.'
            ) from error
        if cells is None:
            return
        yield record[0][0], cells
        record.clear()


def _open_quote(record: Sequence[tuple[int, str]], delimiter: str) -> int:
    """The line where the last quoted cell of a malformed record starts."""
    opened, inside = record[0][0], False
    for number, line in record:
        before = delimiter
        for letter in line:
            if inside:
                inside = letter != '"'
            elif letter == '"' and before in (delimiter, '"'):  # after a quote: a doubled one, still the same cell
                opened, inside = number if before == delimiter else opened, True
            before = letter
    return opened


def jsonl(file: InputFile) -> Iterator[Record]:
    for number, line in file.lines():
        if not line.strip():
            file.skipped["blank lines"] += 1
            continue
        where = f"{file.path}:{number}"
        yield number, _object(parse(line, where=where), where=where)


def json_array(file: InputFile) -> Iterator[Record]:
    for number, value in file.elements():
        yield number, _object(value, where=f"{file.path}:{number}")


def squad(file: InputFile) -> Iterator[Record]:
    """SQuAD 1 and 2: articles of paragraphs of questions."""
    for number, article in file.elements():
        where = f"{file.path}:{number}"
        for paragraph in _list(article, "paragraphs", where=where):
            context = _object(paragraph, where=where).get("context")
            for question in _list(paragraph, "qas", where=where):
                question = _object(question, where=f"{where}: qas")
                yield (
                    number,
                    {
                        "question": question.get("question"),
                        "context": context,
                        "answers": question.get("answers", []),
                        "id": question.get("id"),
                        "impossible": bool(question.get("is_impossible", False)),
                    },
                )


def plain(file: InputFile) -> Iterator[Record]:
    for number, line in file.lines():
        if line.strip():
            yield number, {"1": line}
        else:
            file.skipped["blank lines"] += 1


def labelled(file: InputFile) -> Iterator[Record]:
    """`label text` on each line."""
    for number, record in plain(file):
        label, _, rest = record["1"].strip().partition(" ")
        if not rest.strip():
            raise DataError(f'{file.path}:{number}: text: expected "label text", found only {label!r:.80}.')
        yield number, {"1": label, "2": rest.strip()}


def fasttext(file: InputFile) -> Iterator[Record]:
    """`__label__a __label__b text` on each line; one label is a text, several are a list."""
    for number, record in plain(file):
        words = record["1"].split()
        labels = [word.removeprefix(FASTTEXT) for word in words if word.startswith(FASTTEXT)]
        text = " ".join(word for word in words if not word.startswith(FASTTEXT))
        if not text or not labels or not all(labels):
            missing = "label" if not labels else "text" if not text else "name of a label"
            raise DataError(f'{file.path}:{number}: expected "{FASTTEXT}name text", found no {missing}.')
        yield number, {"1": labels[0] if len(labels) == 1 else labels, "2": text}


def whole(file: InputFile) -> Iterator[Record]:
    """A text file that is one example; its folder's name is its label."""
    pieces, size = [], 0
    for piece in file.text():
        pieces.append(piece)
        size += len(piece)
        if size > file.limits.line_bytes:
            raise DataError(f"{file.path}:1: longer than {file.limits.line_bytes:,} bytes; split the text.")
    content = "".join(pieces).replace("\r\n", "\n").strip()
    if content:
        yield 1, {"folder": file.path.parent.name, "file": content}
    else:
        file.skipped["empty files"] += 1


def parquet(file: InputFile) -> Iterator[Record]:
    """Rows are numbered from 1 in place of lines."""
    try:
        module = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"{file.path}: reading Parquet needs pyarrow; install headway[parquet].") from error
    number = 0
    try:
        with open_file(file.path) as opened:
            table = module.ParquetFile(opened)
            at_once = _refuse_parquet_bomb(file, table.metadata)
            for batch in table.iter_batches(batch_size=at_once):
                for record in batch.to_pylist():
                    number += 1
                    yield number, record
    except DataError:
        raise
    except Exception as error:  # whatever its decoders meet
        raise DataError(f"{file.path}:{number + 1}: the Parquet file is damaged here ({error}).") from error


def _refuse_parquet_bomb(file: InputFile, metadata: Any) -> int:
    """How many rows are decoded at once: few if they are large (pictures)."""
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    values = sum(group.column(n).num_values for group in groups for n in range(group.num_columns))
    refuse_ratio(file.path, max(sum(group.total_byte_size for group in groups), values * VALUE_BYTES), file.limits)
    mean = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    at_once = min(PARQUET_ROWS, max(1, PARQUET_BYTES // max(mean, 1)))
    if damaged := try_table(file.path, "parquet", rows=at_once, limits=file.limits):
        raise DataError(f"{file.path}: the Parquet file is damaged ({printable(damaged)}).")
    return at_once


def _object(value: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object with named fields, found {kind(value)}.")
    return value


def _list(value: Any, name: str, *, where: str) -> list[Any]:
    found = _object(value, where=where).get(name)
    if not isinstance(found, list):
        raise DataError(f"{where}: {name}: expected a list, found {kind(found)}.")
    return found


READERS: dict[str, Callable[[InputFile], Iterator[Record]]] = {
    "table": table,
    "JSON lines": jsonl,
    "JSON array": json_array,
    "SQuAD": squad,
    "one text a line": plain,
    "label and text a line": labelled,
    "fastText": fasttext,
    "CoNLL": conll,
    "CoNLL-U": conll,
    "parallel lines": plain,
    "a folder a label": whole,
    "Parquet": parquet,
    "Excel": table,
}
