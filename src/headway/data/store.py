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

from headway.data.draft import CHUNK, INDEX, VERSION, WHERE, Draft, file_names, hashed, read_sealed
from headway.errors import DataError

WHOLE = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class Store:
    """`store[i]` gives views on the mapped files; `store.where(i)` the line the example came from."""

    def __init__(self, folder: Path, index: Mapping[str, Any]) -> None:
        self.folder, self.key = folder, str(index["key"])
        self.note: dict[str, Any] = index["note"]  # the writer's own
        self._names: list[str] = index["names"]
        self._flat = {name: _map(folder / f"{name}.bin", dtype) for name, dtype in index["fields"].items()}
        self._offsets = {name: _map(folder / f"{name}.offsets.bin", "int64") for name in index["fields"]}
        self._places = _map(folder / f"{WHERE}.bin", "int64").reshape(-1, 2)  # (example, [name, line])

    @classmethod
    def build(
        cls, folder: str | Path, examples: Iterable[Mapping[str, Any]], *, key: str,
        progress: Callable[[int], object] | None = None,
    ) -> Store:  # fmt: skip
        """Writes examples beside `folder` and puts them in its place when all is on disk.

        An example's entry "where" (`file:line`, optional) is kept as its place. `progress` is told the count so far.
        """
        with Draft(Path(folder), key=key) as draft:
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
        index = read_sealed(folder / INDEX)
        try:
            if index is None or (index["version"], index["key"]) != (VERSION, key) or not _is_whole(folder, index):
                return None
            return cls(folder, index)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

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
                hasher.update(f"{name}\0{hashed(file).hexdigest()}\0".encode())
            except OSError as error:
                raise DataError(f"{file}: cannot be read ({error.strerror}).") from error
    return hasher.hexdigest()


def _is_whole(folder: Path, index: Mapping[str, Any]) -> bool:
    """Whether the files are those that the index tells of, and what they say of each other holds. An index comes from
    anywhere: names are plain, types are whole numbers, offsets ascend and end where the values do."""
    types: Mapping[str, str] = index["fields"]
    if set(index["files"]) != file_names(types) or not set(types.values()) <= WHOLE:
        return False
    if not types or not all(_same(folder / name, entry) for name, entry in index["files"].items()):
        return False
    places = _map(folder / f"{WHERE}.bin", "int64")
    names = places[0::2]
    listed, note = index["names"], index["note"]
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed) or not isinstance(note, dict):
        return False
    if len(places) % 2 or not len(places) or names.min() < 0 or names.max() >= len(index["names"]):
        return False
    return all(_fit(folder, name, dtype, count=len(names)) for name, dtype in types.items())


def _fit(folder: Path, name: str, dtype: str, *, count: int) -> bool:
    offsets, size = _map(folder / f"{name}.offsets.bin", "int64"), (folder / f"{name}.bin").stat().st_size
    ends = len(offsets) == count + 1 and offsets[0] == 0 and offsets[-1] * np.dtype(dtype).itemsize == size
    return bool(ends) and all(
        bool((np.diff(offsets[at : at + CHUNK + 1]) >= 0).all()) for at in range(0, len(offsets), CHUNK)
    )


def _map(path: Path, dtype: str) -> np.ndarray:
    if path.stat().st_size == 0:  # nothing to map
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _same(path: Path, entry: Mapping[str, Any]) -> bool:
    return bool(path.stat().st_size == entry["bytes"]) and hashed(path).hexdigest() == entry["checksum"]
