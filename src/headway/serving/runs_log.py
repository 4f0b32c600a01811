"""A run's log as server-sent events, from any byte on.

The id of an event is the place in metrics.jsonl after it, with a checksum of the bytes before that place. A browser
that reconnects sends it as Last-Event-ID. A resumed training truncates its log: the checksum differs then, and the
reader begins again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import math
import os
import re
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headway.files import is_present, open_file
from headway.jobs.run_folder import run_file
from headway.training.folder import METRICS, Entry, parse_entry

PLACE = re.compile(r"(\d{1,15})-([0-9a-f]{16})")
CHECKED = 256  # bytes before a place that its checksum is of
PART = 256 * 1024  # most bytes of the log in one event
PAUSE = 0.4  # seconds between two looks
LONGEST = 240.0  # seconds of a stream; the browser then opens another from where it is
SILENCE = 15.0  # seconds after which a comment is sent, so that a connection that is gone is noticed


@dataclass(frozen=True)
class LogPart:
    entries: list[Entry]
    place: str
    more: bool  # there is more to read now


class LogReader:
    """Reads the entries of a log from a place on."""

    def __init__(self, folder: Path, place: str | None = None) -> None:
        self.folder, self.path = folder, run_file(folder, METRICS)
        found = PLACE.fullmatch(place or "")
        self.offset, self.checksum = (int(found[1]), found[2]) if found else (0, _checksum(b""))
        self.is_reset = bool(place) and not found

    def read(self) -> LogPart | None:
        """The entries since the last call; None if there are none. Sets `is_reset` if the log is not the one that was
        read before, so that it is read from its beginning."""
        if not is_present(self.path):
            self._move(0, b"")
            return None
        with open_file(self.path, inside=self.folder) as file:
            size = os.fstat(file.fileno()).st_size
            if self.offset > size or _checksum(_before(file, self.offset)) != self.checksum:
                self._move(0, b"")
            file.seek(self.offset)
            data = file.read(PART)
            end = data.rfind(b"\n") + 1
            if not end and len(data) < PART:  # a line that is just being written
                return None
            data = data[: end or len(data)]
            self.offset += len(data)
            self.checksum = _checksum(_before(file, self.offset))
        found = [entry for line in data.splitlines() if (entry := parse_entry(line)) is not None and _is_finite(entry)]
        return LogPart(found, f"{self.offset}-{self.checksum}", more=self.offset < size)

    def _move(self, offset: int, before: bytes) -> None:
        self.is_reset = self.is_reset or self.offset > offset
        self.offset, self.checksum = offset, _checksum(before)


def _before(file: IO[bytes], offset: int) -> bytes:
    """The bytes that the checksum of a place is of."""
    start = max(0, offset - CHECKED)
    file.seek(start)
    return file.read(offset - start)


def _checksum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _is_finite(value: Any) -> bool:
    """Whether JSON can say it: a log has no NaN, but a damaged one may."""
    if isinstance(value, dict):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


async def events(
    reader: LogReader, facts: Callable[[], dict[str, Any]], *, active: Callable[[dict[str, Any]], bool],
    stopping: Callable[[], bool],
) -> AsyncIterator[bytes]:  # fmt: skip
    """`run`: the run's facts, when they change; `reset`: forget all entries; `entries`: more of them; `end`: the run is
    not active, and everything has been sent."""
    started = sent = time.monotonic()
    before: dict[str, Any] | None = None
    yield b"retry: 1000\n\n"
    while not stopping() and time.monotonic() - started < LONGEST:
        now = await asyncio.to_thread(facts)  # before the log: all that was logged by then is read below
        part = await asyncio.to_thread(reader.read)
        found = [_event("reset", {})] if reader.is_reset else []
        reader.is_reset = False
        if part is not None and part.entries:
            found.append(_event("entries", part.entries, id=part.place))
        if now != before:
            found.append(_event("run", now))
        if not found and time.monotonic() - sent > SILENCE:
            found.append(b": \n\n")
        before = now
        for each in found:
            sent = time.monotonic()
            yield each
        if part is not None and part.more:
            continue
        if not active(now):
            yield _event("end", now)
            return
        await asyncio.sleep(PAUSE)


def _event(name: str, value: Any, *, id: str | None = None) -> bytes:
    head = f"id: {id}\n" if id is not None else ""
    data = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f"{head}event: {name}\ndata: {data}\n\n".encode()
