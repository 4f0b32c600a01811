"""Data room: prepared examples, written once and mapped into memory ever after.

An example is a dict of one-dimensional integer arrays, each field ragged. A field is one flat file and its offsets; an
index names every file with size and checksum, so a half-written or damaged store is never read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.checksums import WHERE, is_intact, mapped, read_checksummed
from headway.data.store_writer import INDEX, VERSION, StoreWriter
from headway.errors import DataError
from headway.files import BLAKE2B, file_hash


class Store:
    """`store[i]` gives views on the mapped files; `store.where(i)` the line the example came from."""

    def __init__(self, folder: Path, index: Mapping[str, Any]) -> None:
        self.folder, self.key = folder, str(index["key"])
        self.note: dict[str, Any] = index["note"]  # the writer's own
        self._names: list[str] = index["names"]
        self._flat = {name: mapped(folder / f"{name}.bin", dtype) for name, dtype in index["fields"].items()}
        self._offsets = {name: mapped(folder / f"{name}.offsets.bin", "int64") for name in index["fields"]}
        self._places = mapped(folder / f"{WHERE}.bin", "int64").reshape(-1, 2)  # (example, [name, line])

    @classmethod
    def build(
        cls, folder: str | Path, examples: Iterable[Mapping[str, Any]], *, key: str,
        progress: Callable[[int], object] | None = None,
    ) -> Store:  # fmt: skip
        """Writes examples beside `folder` and puts them in its place when all is on disk.

        An example's entry "where" (`file:line`, optional) is kept as its place. `progress` is told the count so far.
        """
        with StoreWriter(Path(folder), key=key) as draft:
            for example in examples:
                draft.add(example)
                if progress is not None:
                    progress(draft.count)
            draft.finish()
        return cls.just_written(folder, key)

    @classmethod
    def just_written(cls, folder: str | Path, key: str) -> Store:
        store = cls.open(folder, key)
        if store is None:
            raise DataError(f"{folder}: what was just written does not read back; is the disk sound?")
        return store

    @classmethod
    def open(cls, folder: str | Path, key: str) -> Store | None:
        """The store, or None if there is none for this key, or it is half-written or damaged: build it again."""
        folder = Path(folder)
        index = read_checksummed(folder / INDEX)
        if index is None or (index.get("version"), index.get("key")) != (VERSION, key) or not is_intact(folder, index):
            return None
        return cls(folder, index)

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, position: int) -> dict[str, np.ndarray]:
        if not 0 <= position < len(self):
            raise IndexError(f"example {position} of {len(self)}")
        return {
            name: flat[self._offsets[name][position] : self._offsets[name][position + 1]]
            for name, flat in self._flat.items()
        }

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self._flat)

    def lengths(self, field: str) -> np.ndarray:
        return np.diff(self._offsets[field])

    def flat(self, field: str) -> np.ndarray:
        """All examples of a field end to end: a token stream."""
        return self._flat[field]

    def where(self, position: int) -> str:
        name, line = (int(number) for number in self._places[position])
        return self._names[name] + (f":{line}" if line >= 0 else "")


def fingerprint(paths: str | Path | Iterable[str | Path]) -> str:
    """A hash of the files' contents, in order; a folder stands for the files below it. Moving them changes nothing."""
    hasher = hashlib.blake2b(digest_size=16)
    for path in [paths] if isinstance(paths, str | Path) else paths:
        top = Path(path)
        files = sorted(file for file in top.rglob("*") if file.is_file()) if top.is_dir() else [top]
        for file in files:
            name = file.relative_to(top).as_posix() if top.is_dir() else ""
            try:
                hasher.update(f"{name}\0{file_hash(file, BLAKE2B).hexdigest()}\0".encode())
            except OSError as error:
                raise DataError(f"{file}: cannot be read ({error.strerror}).") from error
    return hasher.hexdigest()
