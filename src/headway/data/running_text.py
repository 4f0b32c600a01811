"""Rows of running text: one long text, cut at line ends."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

from headway.data.read import OnFileBytes
from headway.data.row import Row
from headway.data.text_reader import read_text

PIECE = 1 << 14  # characters; a row is cut at the first line end after this many …
LONGEST = 1 << 16  # … or at a space, if no line ends before this


def text_rows(
    files: Sequence[Path], *, encoding: str | None = None, on_bytes: OnFileBytes | None = None
) -> Iterator[Row]:
    """The text in order, cut at line ends. Joined, the rows are the file's text with all line ends as newlines."""
    for path in files:
        line, pending, ends = 1, "", io.IncrementalNewlineDecoder(None, translate=True)
        observer = None if on_bytes is None else partial(on_bytes, path)
        for chunk in chain(read_text(path, encoding=encoding, on_bytes=observer), [""]):
            pending += ends.decode(chunk, final=not chunk)
            at = 0
            while end := _row_end(pending, at):
                yield Row({"text": pending[at:end], "running": True}, f"{path.name}:{line}")
                line += pending.count("\n", at, end)
                at = end
            pending = pending[at:]
        if pending:
            yield Row({"text": pending, "running": True}, f"{path.name}:{line}")


def _row_end(text: str, start: int) -> int:
    """The end of the row that starts at `start`; 0 if more text is needed."""
    if line_end := text.find("\n", start + PIECE, start + LONGEST) + 1:
        return line_end
    if len(text) < start + LONGEST:
        return 0
    return text.rfind(" ", start + PIECE, start + LONGEST) + 1 or start + LONGEST


def rows_between(rows: Iterable[Row], start: int, end: int) -> Iterator[Row]:
    """Characters `start` to `end` of the rows' joined text, as rows."""
    at = 0
    for row in rows:
        text = row.fields["text"]
        cut = text[max(0, start - at) : max(0, end - at)]
        at += len(text)
        if cut:
            yield Row({**row.fields, "text": cut}, row.where)
