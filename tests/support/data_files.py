"""Data files of a test: written, and read as rows."""

import gzip
from pathlib import Path
from typing import Any

from headway.data.read import read

CLASSIFY = ("text", "label")
PAIR = ("source", "target")


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content if isinstance(content, bytes) else content.encode()
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def fields(path: Path, names: tuple[str, ...] = CLASSIFY, **options: Any) -> list[dict[str, Any]]:
    return [row.fields for row in read(path, fields=names, **options)]
