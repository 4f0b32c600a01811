"""`InputFile`: a file and how to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headway.data.json_stream import elements
from headway.data.row import Layout
from headway.data.text_reader import DEFAULT, OnBytes, ReadLimits, read_lines, read_text

Record = tuple[int, dict[str, Any]]  # line number, column -> raw value


@dataclass
class InputFile:
    """A file and how to read it; `skipped` counts the lines without an example."""

    path: Path
    layout: Layout
    limits: ReadLimits = DEFAULT
    skipped: Counter[str] = field(default_factory=Counter)
    on_bytes: OnBytes | None = None  # called with the file's bytes as they are read

    def lines(self) -> Iterator[tuple[int, str]]:
        return read_lines(self.path, encoding=self.layout.encoding, limits=self.limits, on_bytes=self.on_bytes)

    def text(self) -> Iterator[str]:
        return read_text(self.path, encoding=self.layout.encoding, limits=self.limits, on_bytes=self.on_bytes)

    def elements(self) -> Iterator[tuple[int, Any]]:
        return elements(self.path, encoding=self.layout.encoding, limits=self.limits, on_bytes=self.on_bytes)
