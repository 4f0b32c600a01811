"""CoNLL: one word per line with its columns, sentences separated by empty lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from headway.data.input_file import InputFile, Record
from headway.errors import DataError

COMMENT = re.compile(r"#\s*[\w.:-]+\s*=")  # of a sentence: # sent_id = 3


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
