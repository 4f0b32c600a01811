"""Data room: prepared examples, written once and mapped into memory ever after.

An example is a dict of one-dimensional integer arrays, each field ragged. A field is one flat file and its offsets; an
index names every file with size and checksum, so a half-written or damaged store is never read.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from headway.errors import DataError

INDEX = "index.json"
VERSION = 1
WHERE = "where"
CHUNK = 1 << 20


class Store:
    """`store[i]` gives views on the mapped files; `store.where(i)` the line the example came from."""

    def __init__(self, folder: Path, index: Mapping[str, Any]) -> None:
        self.folder, self.key = folder, str(index["key"])
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
        folder = Path(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            _write(draft, examples, key=key, progress=progress)
            if folder.exists():
                shutil.rmtree(folder)
            os.replace(draft, folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        store = cls.open(folder, key)
        if store is None:
            raise DataError(f"{folder}: what was just written does not read back; is the disk sound?")
        return store

    @classmethod
    def open(cls, folder: str | Path, key: str) -> Store | None:
        """The store, or None if there is none for this key, or it is half-written or damaged: build it again."""
        folder = Path(folder)
        try:
            index = json.loads((folder / INDEX).read_text())
            whole = index["version"] == VERSION and index["key"] == key and index["seal"] == _seal(index)
            whole = whole and all(_same(folder / name, entry) for name, entry in index["files"].items())
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return cls(folder, index) if whole else None

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
                hasher.update(f"{name}\0{_checksum(file)}\0".encode())
            except OSError as error:
                raise DataError(f"{file}: cannot be read ({error.strerror}).") from error
    return hasher.hexdigest()


def _write(
    folder: Path, examples: Iterable[Mapping[str, Any]], *, key: str, progress: Callable[[int], object] | None
) -> None:
    files: dict[str, BinaryIO] = {}
    dtypes: dict[str, str] = {}
    offsets: dict[str, array[int]] = {}
    places, names = array("q"), dict[str, int]()
    try:
        for count, example in enumerate(examples, 1):
            place = str(example.get(WHERE, ""))
            values = {name: np.asarray(value) for name, value in example.items() if name != WHERE}
            if count == 1:
                for name, value in values.items():
                    files[name] = (folder / f"{name}.bin").open("wb")
                    dtypes[name], offsets[name] = value.dtype.name, array("q", [0])
            _check(values, dtypes, place=place or f"example {count}")
            for name, value in values.items():
                files[name].write(value.tobytes())
                offsets[name].append(offsets[name][-1] + len(value))
            file_name, line = _split_place(place)
            places.extend((names.setdefault(file_name, len(names)), line))
            if progress is not None:
                progress(count)
    finally:
        for file in files.values():
            file.close()
    if not files:
        raise DataError("There are no examples to store.")
    for field, starts in offsets.items():
        (folder / f"{field}.offsets.bin").write_bytes(starts.tobytes())
    (folder / f"{WHERE}.bin").write_bytes(places.tobytes())
    listed = {path.name: _entry(path) for path in sorted(folder.iterdir())}
    index: dict[str, Any] = {"version": VERSION, "key": key, "fields": dtypes, "names": list(names), "files": listed}
    index["seal"] = _seal(index)
    with (folder / INDEX).open("w") as written:
        json.dump(index, written)
        written.flush()
        os.fsync(written.fileno())


def _check(values: Mapping[str, np.ndarray], dtypes: Mapping[str, str], *, place: str) -> None:
    if {name: value.dtype.name for name, value in values.items()} != dtypes:
        found = {name: value.dtype.name for name, value in values.items()}
        raise DataError(f"{place}: fields {found} where the first example has {dict(dtypes)}.")
    for name, value in values.items():
        if value.ndim != 1 or value.dtype.kind not in "iu":
            raise DataError(f"{place}: {name}: expected a one-dimensional array of whole numbers.")


def _split_place(place: str) -> tuple[str, int]:
    name, _, line = place.rpartition(":")
    return (name, int(line)) if name and line.isdecimal() else (place, -1)


def _map(path: Path, dtype: str) -> np.ndarray:
    if path.stat().st_size == 0:  # nothing to map
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _entry(path: Path) -> dict[str, Any]:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "checksum": _checksum(path)}


def _same(path: Path, entry: Mapping[str, Any]) -> bool:
    return bool(path.stat().st_size == entry["bytes"]) and bool(_checksum(path) == entry["checksum"])


def _checksum(path: Path) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
    return hasher.hexdigest()


def _seal(index: Mapping[str, Any]) -> str:
    """A checksum of the index itself."""
    content = {name: value for name, value in index.items() if name != "seal"}
    return hashlib.blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=16).hexdigest()
