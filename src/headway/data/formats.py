"""One reader per file format. Each yields (line number, record); a record is column -> raw value.

Columns are a header's names, a JSON object's keys, or numbers from 1. In tab-separated files quotes are plain
characters, as in the format's registration with IANA; in other tables they quote.
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
from headway.data.text_reader import DEFAULT, Limits, OnBytes, read_lines, read_text
from headway.errors import DataError

COMMENT = re.compile(r"#\s*[\w.:-]+\s*=")  # of a sentence in CoNLL: # sent_id = 3

Record = tuple[int, dict[str, Any]]


@dataclass
class InputFile:
    """A file and how to read it; `skipped` counts the lines without an example."""

    path: Path
    layout: Layout
    limits: Limits = DEFAULT
    skipped: Counter[str] = field(default_factory=Counter)
    on_bytes: OnBytes | None = None  # called with the file's bytes as they are read

    def lines(self) -> Iterator[tuple[int, str]]:
        return read_lines(self.path, encoding=self.layout.encoding, limits=self.limits, on_bytes=self.on_bytes)

    def text(self) -> Iterator[str]:
        return read_text(self.path, encoding=self.layout.encoding, limits=self.limits, on_bytes=self.on_bytes)

    def elements(self) -> Iterator[tuple[int, Any]]:
        return elements(self.path, encoding=self.layout.encoding, limits=self.limits, on_bytes=self.on_bytes)


def table(file: InputFile) -> Iterator[Record]:
    """CSV, TSV and similar: one record per row, all rows with the same number of columns."""
    layout, width = file.layout, len(file.layout.columns)
    header = layout.header
    for number, cells in _rows(file):
        if not any(cell.strip() for cell in cells):
            file.skipped["blank lines"] += 1
            continue
        if header:
            if tuple(cells) != layout.columns:
                raise DataError(f"{file.path}:{number}: the header differs from the first file's: {cells!r:.200}.")
            header = False
            continue
        if len(cells) != width:
            raise DataError(
                f"{file.path}:{number}: {len(cells)} columns where {width} were expected. "
                "A separator inside a text must be quoted, or the line is damaged."
            )
        yield number, dict(zip(layout.columns, cells, strict=True))


def split_rows(
    path: Path, *, delimiter: str, encoding: str, limits: Limits = DEFAULT
) -> Iterator[tuple[int, list[str]]]:
    """The raw rows of a table before its layout is known."""
    return _rows(InputFile(path, Layout("table", delimiter=delimiter, encoding=encoding), limits))


def _rows(file: InputFile) -> Iterator[tuple[int, list[str]]]:
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


def conll(file: InputFile) -> Iterator[Record]:
    """One word per line with its columns; an empty line or a -DOCSTART- line ends a sentence. Comments (`# key = …`)
    before a sentence are skipped, and in CoNLL-U the lines of multiword tokens (1-2) and empty nodes (1.1)."""
    sentence: list[list[str]] = []
    first, size, width = 1, 0, len(file.layout.columns)
    for number, line in file.lines():
        if line.startswith("-DOCSTART-"):
            file.skipped["document marks"] += 1
        elif line.strip():
            cells = conll_cells(line, file.layout.delimiter)
            if not sentence and line.startswith("#") and (len(cells) != width or COMMENT.match(line)):
                file.skipped["comments"] += 1
                continue
            if file.layout.format == "CoNLL-U" and not cells[0].isdecimal():
                file.skipped["multiword tokens and empty nodes"] += 1
                continue
            if len(cells) != width:
                raise DataError(
                    f"{file.path}:{number}: tags: {len(cells)} columns where {width} were expected: {line!r:.80}. "
                    "Give every word all its columns; an empty line ends a sentence."
                )
            if not all(cells):
                raise DataError(
                    f"{file.path}:{number}: column {cells.index('') + 1} is empty: {line!r:.80}; give it a value."
                )
            first, size = (number, 0) if not sentence else (first, size + len(line))
            if size > file.limits.line_bytes:
                raise DataError(f"{file.path}:{first}: a sentence is too long; separate sentences by empty lines.")
            sentence.append(cells)
            continue
        if sentence:
            yield first, _columns(sentence)
            sentence = []
    if sentence:
        yield first, _columns(sentence)


def is_conll_u(cells: Sequence[str]) -> bool:
    """Whether these are the columns of a word in CoNLL-U: ID FORM LEMMA UPOS XPOS FEATS HEAD DEPREL DEPS MISC."""
    return len(cells) == 10 and re.fullmatch(r"\d+([-.]\d+)?", cells[0]) is not None


def conll_cells(line: str, delimiter: str | None) -> list[str]:
    return line.rstrip("\t ").split("\t") if delimiter == "\t" else re.split(r"[ \t]+", line.strip())


def _columns(sentence: Sequence[Sequence[str]]) -> dict[str, Any]:
    return {str(index): list(column) for index, column in enumerate(zip(*sentence, strict=True), 1)}


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
        for batch in module.ParquetFile(file.path).iter_batches(batch_size=256):
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (OSError, ValueError) as error:  # pyarrow's errors are subclasses of these
        raise DataError(f"{file.path}:{number + 1}: the Parquet file is damaged here ({error}).") from error


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
    "CoNLL": conll,
    "CoNLL-U": conll,
    "parallel lines": plain,
    "a folder a label": whole,
    "Parquet": parquet,
}
