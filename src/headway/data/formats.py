"""Data room: one reader a file format. Each yields (line, record); a record is column -> raw value.

What a format calls a column is its own affair: a header's names, a JSON object's keys, or numbers from 1.
In tab-separated files quotes are plain characters, as the format's registration has it; elsewhere they quote.
"""

from __future__ import annotations

import csv
import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.data.json_stream import elements, parse
from headway.data.row import Layout, kind
from headway.data.text_reader import DEFAULT, Limits, lines, text
from headway.errors import DataError

Record = tuple[int, dict[str, Any]]


@dataclass
class Source:
    """A file with what is needed to read it; `skipped` counts the lines that hold no example."""

    path: Path
    layout: Layout
    limits: Limits = DEFAULT
    skipped: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[tuple[int, str]]:
        return lines(self.path, encoding=self.layout.encoding, limits=self.limits)


def table(source: Source) -> Iterator[Record]:
    """CSV and its kin: one row a record, every row as wide as the first."""
    layout, width = source.layout, len(source.layout.columns)
    header = layout.header
    for number, cells in _rows(source):
        if not any(cell.strip() for cell in cells):
            source.skipped["blank lines"] += 1
            continue
        if header:
            if tuple(cells) != layout.columns:
                raise DataError(f"{source.path}:{number}: the header differs from the first file's: {cells!r:.200}.")
            header = False
            continue
        if len(cells) != width:
            raise DataError(
                f"{source.path}:{number}: {len(cells)} columns where {width} were expected. "
                "A separator inside a text must be quoted, or the line is damaged."
            )
        yield number, dict(zip(layout.columns, cells, strict=True))


def split_rows(
    path: Path, *, delimiter: str, encoding: str, limits: Limits = DEFAULT
) -> Iterator[tuple[int, list[str]]]:
    """The raw rows of a table whose layout is not known yet."""
    return _rows(Source(path, Layout("table", delimiter=delimiter, encoding=encoding), limits))


def _rows(source: Source) -> Iterator[tuple[int, list[str]]]:
    delimiter = source.layout.delimiter or ","
    if delimiter == "\t":
        yield from ((number, line.split("\t")) for number, line in source.lines())
        return
    csv.field_size_limit(max(csv.field_size_limit(), source.limits.line_bytes))
    record: list[tuple[int, str]] = []  # the lines of the record being read, for the error that names them

    def feed() -> Iterator[str]:
        size = 0
        for number, line in source.lines():
            size = size + len(line) if record else len(line)
            record.append((number, line))
            if size > source.limits.line_bytes:
                raise csv.Error(f"a record longer than {source.limits.line_bytes:,} bytes")
            yield line + "\n"

    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            if "new-line" in str(error):
                raise DataError(
                    f"{source.path}:{record[-1][0]}: a carriage return inside a cell that is not quoted. "
                    "Quote the cell, or remove the character."
                ) from error
            number = _open_quote(record, delimiter)
            raise DataError(
                f"{source.path}:{number}: a quote opened here is never closed properly ({error}). "
                'Close it, or double it ("") if it belongs to the text.'
            ) from error
        if cells is None:
            return
        yield record[0][0], cells
        record.clear()


def _open_quote(record: Sequence[tuple[int, str]], delimiter: str) -> int:
    """The line on which the last quoted cell of a broken record opened."""
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


def jsonl(source: Source) -> Iterator[Record]:
    for number, line in source.lines():
        if not line.strip():
            source.skipped["blank lines"] += 1
            continue
        where = f"{source.path}:{number}"
        yield number, _object(parse(line, where=where), where=where)


def json_array(source: Source) -> Iterator[Record]:
    for number, value in elements(source.path, encoding=source.layout.encoding, limits=source.limits):
        yield number, _object(value, where=f"{source.path}:{number}")


def squad(source: Source) -> Iterator[Record]:
    """SQuAD 1 and 2: articles of paragraphs of questions."""
    for number, article in elements(source.path, encoding=source.layout.encoding, limits=source.limits):
        where = f"{source.path}:{number}"
        for paragraph in _list(article, "paragraphs", where=where):
            context = _object(paragraph, where=where).get("context")
            for asked in _list(paragraph, "qas", where=where):
                asked = _object(asked, where=f"{where}: qas")
                yield (
                    number,
                    {
                        "question": asked.get("question"),
                        "context": context,
                        "answers": asked.get("answers", []),
                        "id": asked.get("id"),
                        "impossible": bool(asked.get("is_impossible", False)),
                    },
                )


def plain(source: Source) -> Iterator[Record]:
    for number, line in source.lines():
        if line.strip():
            yield number, {"1": line}
        else:
            source.skipped["blank lines"] += 1


def labelled(source: Source) -> Iterator[Record]:
    """`label text` on each line."""
    for number, record in plain(source):
        label, _, rest = record["1"].strip().partition(" ")
        if not rest.strip():
            raise DataError(f'{source.path}:{number}: text: expected "label text", found only {label!r:.80}.')
        yield number, {"1": label, "2": rest.strip()}


def conll(source: Source) -> Iterator[Record]:
    """One word a line with its columns; an empty line ends a sentence, and so does a document mark."""
    sentence: list[list[str]] = []
    first, size, width = 1, 0, len(source.layout.columns)
    for number, line in source.lines():
        if line.startswith("-DOCSTART-"):
            source.skipped["document marks"] += 1
        elif line.strip():
            cells = conll_cells(line, source.layout.delimiter)
            if len(cells) != width:
                raise DataError(
                    f"{source.path}:{number}: tags: {len(cells)} columns where {width} were expected: {line!r:.80}. "
                    "Give every word all its columns; an empty line ends a sentence."
                )
            if not all(cells):
                raise DataError(
                    f"{source.path}:{number}: column {cells.index('') + 1} is empty: {line!r:.80}; give it a value."
                )
            first, size = (number, 0) if not sentence else (first, size + len(line))
            if size > source.limits.line_bytes:
                raise DataError(f"{source.path}:{first}: a sentence that does not end; empty lines separate sentences.")
            sentence.append(cells)
            continue
        if sentence:
            yield first, _columns(sentence)
            sentence = []
    if sentence:
        yield first, _columns(sentence)


def conll_cells(line: str, delimiter: str | None) -> list[str]:
    return line.rstrip("\t ").split("\t") if delimiter == "\t" else re.split(r"[ \t]+", line.strip())


def _columns(sentence: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {str(index): list(column) for index, column in enumerate(zip(*sentence, strict=True), 1)}


def whole(source: Source) -> Iterator[Record]:
    """A text file that is one example; its folder's name is its label."""
    pieces, size = [], 0
    for piece in text(source.path, encoding=source.layout.encoding, limits=source.limits):
        pieces.append(piece)
        size += len(piece)
        if size > source.limits.line_bytes:
            raise DataError(f"{source.path}:1: longer than {source.limits.line_bytes:,} bytes; split the text.")
    content = "".join(pieces).replace("\r\n", "\n").strip()
    if content:
        yield 1, {"folder": source.path.parent.name, "file": content}
    else:
        source.skipped["empty files"] += 1


def parquet(source: Source) -> Iterator[Record]:
    """Rows are counted from 1, as there are no lines."""
    try:
        module = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(f"{source.path}: reading Parquet needs pyarrow; install headway[parquet].") from error
    number = 0
    try:
        for batch in module.ParquetFile(source.path).iter_batches(batch_size=256):
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (OSError, ValueError) as error:  # pyarrow's own errors are kinds of these
        raise DataError(f"{source.path}:{number + 1}: the Parquet file is damaged here ({error}).") from error


def _object(value: Any, *, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{where}: expected a JSON object with named fields, found {kind(value)}.")
    return value


def _list(value: Any, name: str, *, where: str) -> list[Any]:
    found = _object(value, where=where).get(name)
    if not isinstance(found, list):
        raise DataError(f"{where}: {name}: expected a list, found {kind(found)}.")
    return found


READERS: dict[str, Callable[[Source], Iterator[Record]]] = {
    "table": table,
    "JSON lines": jsonl,
    "JSON array": json_array,
    "SQuAD": squad,
    "one text a line": plain,
    "label and text a line": labelled,
    "CoNLL": conll,
    "parallel lines": plain,
    "a folder a label": whole,
    "Parquet": parquet,
}
