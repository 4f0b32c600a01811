"""Data room: a store while it is written. Memory does not grow with the data, and a killed process loses little.

Everything goes straight to files: each field's values, their offsets, every example's place. Now and then a mark names
what is safely on the disk, with a note of the writer's own; the next process cuts the files back to the mark and goes
on from there. Idea: a database's write-ahead log and its checkpoints.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from headway.data.checksums import WHERE, file_names, is_intact, mapped, read_checksummed, write_checksummed
from headway.errors import DataError, HeadwayError
from headway.files import BLAKE2B, LockedError, file_hash, lock

INDEX = "index.json"
MARK = "mark.json"
VERSION = 2
MARK_BYTES = 16 << 20  # written between two marks
WORD = struct.Struct("<q")


class StoreWriter:
    """`add` examples, `mark` where to go on, `finish`. `note` is what the mark found at the beginning said."""

    def __init__(self, folder: Path, *, key: str) -> None:
        self.target, self.folder, self.key = folder, folder.with_name(f".{folder.name}-draft"), key
        self.count, self.note = 0, dict[str, Any]()
        self._tails: dict[str, _Tail] = {}
        self._types: dict[str, str] = {}
        self._ends: dict[str, int] = {}  # of each field: values so far
        self._names: dict[str, int] = {}
        self._marked = False
        self._fresh = 0  # bytes since the last mark
        self._lock = ExitStack()

    def __enter__(self) -> Self:
        with self._writing():
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.enter_context(lock(self.folder.with_name(f"{self.folder.name}.lock")))
            except LockedError:
                raise DataError(f"{self.target}: another process is preparing the data there; wait for it.") from None
            if not self._take_up():
                for file in self.folder.iterdir():
                    file.unlink()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """What was marked stays for another try, unless the data itself was at fault."""
        for tail in self._tails.values():
            tail.file.close()
        if kind is not None and (not self._marked or issubclass(kind, HeadwayError)):
            shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()

    def add(self, example: Mapping[str, Any]) -> None:
        """One-dimensional arrays of whole numbers by field; the entry "where" (`file:line`) is the example's place."""
        place = str(example.get(WHERE, ""))
        values = {name: np.asarray(value) for name, value in example.items() if name != WHERE}
        with self._writing():
            if not self._tails:
                self._begin(values)
            self._check(values, place=place or f"example {self.count + 1}")
            for name, value in values.items():
                self._ends[name] += len(value)
                self._write(f"{name}.bin", value.tobytes())
                self._write(f"{name}.offsets.bin", WORD.pack(self._ends[name]))
            name, line = _split_place(place)
            number = self._names.setdefault(name, len(self._names))
            self._write(f"{WHERE}.bin", WORD.pack(number) + WORD.pack(line))
        self.count += 1

    @property
    def due(self) -> bool:
        """Whether enough was written for another mark."""
        return self._fresh >= MARK_BYTES

    def mark(self, note: Mapping[str, Any]) -> None:
        """All examples so far are on the disk; another process may go on after them."""
        with self._writing():
            write_checksummed(self.folder / MARK, self._said(note))
        self._marked, self._fresh = True, 0

    def finish(self, note: Mapping[str, Any] | None = None) -> None:
        """Puts the store in its place; `note` is kept in its index."""
        if not self._tails:
            raise DataError("There are no examples to store.")
        with self._writing():
            write_checksummed(self.folder / INDEX, {"version": VERSION, **self._said(note or {})})
            if self.target.exists():
                shutil.rmtree(self.target)
            os.replace(self.folder, self.target)
            (self.target / MARK).unlink(missing_ok=True)

    def ends_at(self, place: str) -> bool:
        """Whether the last example on the disk came from there."""
        number, line = mapped(self.folder / f"{WHERE}.bin", "int64")[-2:].tolist()
        return (list(self._names)[number], line) == _split_place(place)

    def _said(self, note: Mapping[str, Any]) -> dict[str, Any]:
        """With all of it on the disk."""
        files = {name: tail.settle() for name, tail in self._tails.items()}
        return {"key": self.key, "fields": self._types, "names": list(self._names), "files": files, "note": dict(note)}

    def _take_up(self) -> bool:
        """Goes back to the last mark, if there is one for this key and the files still hold what it says."""
        said = read_checksummed(self.folder / MARK)
        if said is None or said.get("key") != self.key or not _cut_back(self.folder, said):
            return False
        if not is_intact(self.folder, said):
            return False
        self._tails = {name: _Tail(self.folder / name) for name in said["files"]}
        self._types, self.note = said["fields"], said["note"]
        self._ends = {name: int(mapped(self.folder / f"{name}.offsets.bin", "int64")[-1]) for name in self._types}
        self._names = {name: number for number, name in enumerate(said["names"])}
        self.count = (self.folder / f"{WHERE}.bin").stat().st_size // (2 * WORD.size)
        self._marked = True
        return True

    def _begin(self, values: Mapping[str, np.ndarray]) -> None:
        for name, value in values.items():
            self._types[name], self._ends[name] = value.dtype.name, 0
            for file in (f"{name}.bin", f"{name}.offsets.bin"):
                self._tails[file] = _Tail(self.folder / file)
            self._write(f"{name}.offsets.bin", WORD.pack(0))
        self._tails[f"{WHERE}.bin"] = _Tail(self.folder / f"{WHERE}.bin")

    def _write(self, file: str, data: bytes) -> None:
        self._tails[file].write(data)
        self._fresh += len(data)

    def _check(self, values: Mapping[str, np.ndarray], *, place: str) -> None:
        found = {name: value.dtype.name for name, value in values.items()}
        if found != self._types:
            raise DataError(f"{place}: fields {found} where the first example has {self._types}.")
        for name, value in values.items():
            if value.ndim != 1 or value.dtype.kind not in "iu":
                raise DataError(f"{place}: {name}: expected a one-dimensional array of whole numbers.")

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            free = shutil.disk_usage(self.folder.parent).free if self.folder.parent.exists() else 0
            raise DataError(
                f"{self.target}: the prepared examples cannot be written ({error.strerror}); {self._fresh:,} bytes or "
                f"more are needed and {free:,} are free. Make room, or choose another --out."
            ) from error


class _Tail:
    """A file written at its end, with the checksum of all that is in it."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("ab")
        self.size, self.hasher = path.stat().st_size, file_hash(path, BLAKE2B)

    def write(self, data: bytes) -> None:
        self.file.write(data)
        self.hasher.update(data)
        self.size += len(data)

    def entry(self) -> dict[str, Any]:
        return {"bytes": self.size, "checksum": self.hasher.hexdigest()}

    def settle(self) -> dict[str, Any]:
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.entry()


def _cut_back(folder: Path, said: Mapping[str, Any]) -> bool:
    """What was written after a mark is gone; False if the mark cannot be followed."""
    try:
        if set(said["files"]) != file_names(said["fields"]) or any(
            (folder / name).is_symlink() for name in said["files"]
        ):
            return False
        for name, entry in said["files"].items():
            os.truncate(folder / name, min(entry["bytes"], (folder / name).stat().st_size))
        return True
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return False


def _split_place(place: str) -> tuple[str, int]:
    name, _, line = place.rpartition(":")
    return (name, int(line)) if name and line.isdecimal() and len(line) < 16 else (place, -1)
