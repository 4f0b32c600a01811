"""Streaming JSON: reads one value at a time, so memory does not grow with the file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from headway.data.text_reader import DEFAULT, OnBytes, ReadLimits, read_text
from headway.errors import DataError

SPACE = " \t\r\n"
REMEDY = "fix the example or remove it"


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """ValueError for a repeated key, of which json would silently keep the last."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {repeated!a:.60} is given twice")
    return found


DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys)


def parse(line: str, *, where: str) -> Any:
    """One JSON value that fills a line."""
    return _guarded(lambda: DECODER.decode(line), where=lambda error: where)


def elements(
    path: Path, *, encoding: str | None = None, limits: ReadLimits = DEFAULT, on_bytes: OnBytes | None = None
) -> Iterator[tuple[int, Any]]:
    """(line number, element) of a file's top-level array, or of the array "data" in its top-level object."""
    cursor = _Cursor(path, read_text(path, encoding=encoding, limits=limits, on_bytes=on_bytes), limits)
    opening = cursor.take("[{", wanted="a JSON array or object")
    if opening == "[":
        yield from _array(cursor)
    else:
        found = False
        for key in _keys(cursor):
            if key == "data" and cursor.peek() == "[":
                found = True
                cursor.take("[", wanted="[")
                yield from _array(cursor)
            else:
                cursor.value()
        if not found:
            raise DataError(f'{path}: a JSON object without a "data" array; expected an array of examples.')
    if cursor.peek():
        raise DataError(f"{cursor.where()}: text after the end of the JSON value; one object a line needs .jsonl.")


def _array(cursor: _Cursor) -> Iterator[tuple[int, Any]]:
    if cursor.peek() == "]":
        cursor.take("]", wanted="]")
        return
    while True:
        cursor.peek()
        yield cursor.line, cursor.value()
        if cursor.take(",]", wanted='"," or "]" after an array element') == "]":
            return


def _keys(cursor: _Cursor) -> Iterator[str]:
    if cursor.peek() == "}":
        cursor.take("}", wanted="}")
        return
    while True:
        if cursor.peek() != '"':
            raise DataError(f"{cursor.where()}: bad JSON: expected a quoted key.")
        key = cursor.value()
        cursor.take(":", wanted='":" after a key')
        yield key
        if cursor.take(",}", wanted='"," or "}" after a value') == "}":
            return


class _Cursor:
    """A position in a text that arrives in pieces; text before it is dropped."""

    def __init__(self, path: Path, pieces: Iterator[str], limits: ReadLimits) -> None:
        self.path, self.pieces, self.limits = path, pieces, limits
        self.buffer, self.at, self.line = "", 0, 1

    def where(self) -> str:
        return f"{self.path}:{self.line}"

    def peek(self) -> str:
        """The next character that is not white space, or "" at the end."""
        while True:
            start = self.at
            while self.at < len(self.buffer) and self.buffer[self.at] in SPACE:
                self.at += 1
            self.line += self.buffer.count("\n", start, self.at)
            if self.at < len(self.buffer):
                return self.buffer[self.at]
            if not self._grow():
                return ""

    def take(self, allowed: str, *, wanted: str) -> str:
        found = self.peek()
        if not found or found not in allowed:
            raise DataError(
                f"{self.where()}: bad JSON: expected {wanted}, found {repr(found) if found else 'the end'}."
            )
        self.at += 1
        return found

    def value(self) -> Any:
        """The value that starts here; reads on until it is complete."""
        self.peek()
        while True:
            try:
                value, end = DECODER.raw_decode(self.buffer, self.at)
                tail = self.buffer[end : end + 3]
                cut = len(tail) < 3 and not tail.strip(".eE+-")  # a number may continue in the next piece
                if not cut or not self._grow():
                    break
            except (ValueError, RecursionError):
                if len(self.buffer) - self.at > self.limits.line_bytes:
                    raise DataError(
                        f"{self.where()}: a JSON value that starts here is bad or longer than "
                        f"{self.limits.line_bytes:,} bytes. Fix it, or raise limits=Limits(line_bytes=…)."
                    ) from None
                if not self._grow():
                    _guarded(lambda: DECODER.raw_decode(self.buffer, self.at), where=self._where_of)
        self.line += self.buffer.count("\n", self.at, end)
        self.at = end
        return value

    def _where_of(self, error: json.JSONDecodeError | None) -> str:
        line = self.line + (self.buffer.count("\n", self.at, error.pos) if error else 0)
        return f"{self.path}:{line}"

    def _grow(self) -> bool:
        piece = next(self.pieces, "")
        if piece:
            self.buffer, self.at = self.buffer[self.at :] + piece, 0
        return bool(piece)


def _guarded(decode: Callable[[], Any], *, where: Callable[[json.JSONDecodeError | None], str]) -> Any:
    try:
        return decode()
    except json.JSONDecodeError as error:
        raise DataError(f"{where(error)}: bad JSON: {error.msg} (character {error.colno}); {REMEDY}.") from error
    except RecursionError as error:
        raise DataError(f"{where(None)}: JSON nested too deeply to be an example; {REMEDY}.") from error
    except ValueError as error:
        raise DataError(f"{where(None)}: bad JSON: {error}; {REMEDY}.") from error
