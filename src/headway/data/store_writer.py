"""Writes a store in bounded memory. An interrupted writer continues from its last saved progress.

Values, offsets, shapes and locations are appended to files. Now and then a progress file records the sizes and
checksums of what is on the disk, with metadata of the caller; the next process truncates the files to these sizes and
continues.
Idea: checkpoints of a database's write-ahead log.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, Self

import numpy as np

from headway.data.checksums import WHERE, file_names, is_intact, mapped, read_checksummed, write_checksummed
from headway.data.schema import ArrayField, as_value, read_schema, schema_json
from headway.errors import DataError, DiskError, HeadwayError
from headway.files import BLAKE2B, append_file, disk_errors, file_hash, remove
from headway.locks import LockedError, lock

INDEX = "index.json"
PROGRESS = "progress.json"
VERSION = 3
PROGRESS_BYTES = 16 << 20  # written between two saves of the progress
BUFFER = 1 << 18  # bytes of a file that are hashed and written together
INT64 = struct.Struct("<q")


class StoreWriter:
    """`add` examples, `save_progress` now and then, `finish`. `metadata` is that of the progress found on entry."""

    def __init__(self, folder: Path, *, key: str) -> None:
        self.target, self.folder, self.key = folder, _draft(folder), key
        self.count, self.metadata = 0, dict[str, Any]()
        self._files: dict[str, _AppendedFile] = {}
        self._schema: dict[str, ArrayField] = {}
        self._ends: dict[str, int] = {}  # values of each field so far
        self._names: dict[str, int] = {}
        self._saved = False  # there is a progress file
        self._unsaved_bytes = 0

    def __enter__(self) -> Self:
        with ExitStack() as stack, self._disk_errors():
            try:
                stack.enter_context(lock(self.folder.with_name(f"{self.folder.name}.lock")))
            except LockedError:
                raise DataError(f"{self.target}: another process is preparing the data there; wait for it.") from None
            if not self._continue():
                self._close()
                remove(self.folder)
                self.folder.mkdir()
            self._locked = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Saved progress stays for another try, unless the data itself is at fault."""
        self._close()
        at_fault = kind is not None and issubclass(kind, HeadwayError) and not issubclass(kind, DiskError)
        if kind is not None and (not self._saved or at_fault):
            shutil.rmtree(self.folder, ignore_errors=True)
        self._locked.close()

    def _close(self) -> None:
        for file in self._files.values():
            file.close()

    def add(self, example: Mapping[str, Any]) -> None:
        """Appends arrays and bytes by field name; the entry "where" (`file:line`) is the example's location."""
        where = str(example.get(WHERE, ""))
        values = {name: as_value(value) for name, value in example.items() if name != WHERE}
        with self._disk_errors():
            self._check(values, where=where or f"example {self.count + 1}")
            for name, value in values.items():
                self._append(name, value)
            name, line = _split_location(where)
            number = self._names.setdefault(name, len(self._names))
            self._write(f"{WHERE}.bin", INT64.pack(number) + INT64.pack(line))
        self.count += 1

    @property
    def progress_due(self) -> bool:
        """Whether enough was written to save the progress again."""
        return self._unsaved_bytes >= PROGRESS_BYTES

    def save_progress(self, metadata: Mapping[str, Any]) -> None:
        """Flushes all examples to the disk, so that another process can continue after them."""
        with self._disk_errors():
            write_checksummed(self.folder / PROGRESS, self._index(metadata))
        self._saved, self._unsaved_bytes = True, 0

    def finish(self, metadata: Mapping[str, Any] | None = None) -> None:
        """Completes the store and renames it to its folder; `metadata` is kept in its index."""
        if not self._files:
            raise DataError("There are no examples to store.")
        with self._disk_errors():
            write_checksummed(self.folder / INDEX, self._index(metadata or {}))
            (self.folder / PROGRESS).unlink(missing_ok=True)
            self._close()
            remove(self.target)
            os.replace(self.folder, self.target)

    def ends_at(self, where: str) -> bool:
        """Whether the last example on the disk has this location."""
        number, line = mapped(self.folder / f"{WHERE}.bin", "<i8")[-2:].tolist()
        return (list(self._names)[number], line) == _split_location(where)

    def _index(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Flushes all files and describes them."""
        return {
            "version": VERSION,
            "key": self.key,
            "fields": schema_json(self._schema),
            "names": list(self._names),
            "files": {name: file.flush() for name, file in self._files.items()},
            "metadata": dict(metadata),
        }

    def _continue(self) -> bool:
        """Restores the saved progress, if there is one for this key and the files agree with it."""
        index = None if self.folder.is_symlink() else read_checksummed(self.folder / PROGRESS)
        if index is None or (index.get("version"), index.get("key")) != (VERSION, self.key):
            return False
        if not _truncate_files(self.folder, index) or not is_intact(self.folder, index):
            return False
        self._files = {name: _AppendedFile(self.folder / name) for name in index["files"]}
        self._schema, self.metadata = read_schema(index["fields"]), index["metadata"]
        self._ends = {name: int(mapped(self.folder / f"{name}.offsets.bin", "<i8")[-1]) for name in self._schema}
        self._names = {name: number for number, name in enumerate(index["names"])}
        self.count = (self.folder / f"{WHERE}.bin").stat().st_size // (2 * INT64.size)
        self._saved = True
        return True

    def _append(self, name: str, value: np.ndarray | bytes) -> None:
        field = self._schema[name]
        self._ends[name] += len(value) if isinstance(value, bytes) else value.size
        self._write(f"{name}.bin", field.encode(value))
        self._write(f"{name}.offsets.bin", INT64.pack(self._ends[name]))
        if field.has_shapes and not isinstance(value, bytes):
            self._write(f"{name}.shapes.bin", b"".join(map(INT64.pack, value.shape)))

    def _write(self, file: str, data: bytes) -> None:
        self._files[file].write(data)
        self._unsaved_bytes += len(data)

    def _check(self, values: Mapping[str, np.ndarray | bytes], *, where: str) -> None:
        """Compares an example with the schema; the first one defines it."""
        found = {name: ArrayField.of(value, where=f"{where}: {name}") for name, value in values.items()}
        if not self._files:
            self._schema = found
            self._files = {file: _AppendedFile(self.folder / file) for file in sorted(file_names(found))}
            for name in found:
                self._ends[name] = 0
                self._write(f"{name}.offsets.bin", INT64.pack(0))
        elif found != self._schema:
            raise DataError(
                f"{where}: fields {_described(found)}, but the first example has {_described(self._schema)}."
            )

    def _disk_errors(self) -> AbstractContextManager[None]:
        advice = "Free some space and give the same command again, or choose another output folder"
        return disk_errors(self.target, max(self._unsaved_bytes, BUFFER), advice=advice)


def has_progress(folder: Path) -> bool:
    """Whether a store is there, or a part of it from which a writer continues."""
    return (folder / INDEX).exists() or (_draft(folder) / PROGRESS).exists()


def _draft(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}-draft")


class _AppendedFile:
    """A file opened for appending, with the checksum of its content."""

    def __init__(self, path: Path) -> None:
        self._file = append_file(path, buffering=0)
        self._size, self._hash = path.stat().st_size, file_hash(path, BLAKE2B)
        self._pending = bytearray()

    def write(self, data: bytes) -> None:
        self._pending += data
        if len(self._pending) >= BUFFER:
            self._write_pending()

    def _write_pending(self) -> None:
        self._file.write(self._pending)
        self._hash.update(self._pending)
        self._size += len(self._pending)
        self._pending.clear()

    def flush(self) -> dict[str, Any]:
        """Flushes to the disk; returns size and checksum."""
        self._write_pending()
        os.fsync(self._file.fileno())
        return {"bytes": self._size, "checksum": self._hash.hexdigest()}

    def close(self) -> None:
        self._file.close()


def _truncate_files(folder: Path, index: Mapping[str, Any]) -> bool:
    """Cuts off what was written after the progress was saved; False if the index is malformed."""
    try:
        files = index["files"]
        if set(files) != file_names(read_schema(index["fields"])):
            return False
        for name, entry in files.items():
            with append_file(folder / name) as file:
                file.truncate(min(entry["bytes"], file.seek(0, os.SEEK_END)))
        return True
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return False


def _described(schema: Mapping[str, ArrayField]) -> str:
    return "{" + ", ".join(f"{name}: {field.dtype} of rank {field.rank}" for name, field in schema.items()) + "}"


def _split_location(where: str) -> tuple[str, int]:
    name, _, line = where.rpartition(":")
    return (name, int(line)) if name and line.isdecimal() and len(line) < 16 else (where, -1)
