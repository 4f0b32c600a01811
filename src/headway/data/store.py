"""Prepared examples on disk, written once and memory-mapped.

An example is a dict of arrays (integers or floats, any rank) and bytes; sizes may differ between examples. Each field
has a file of values, one of offsets and, above rank 1, one of shapes. The index has the schema and every file's size
and checksum, so an incomplete or damaged store is never read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np

from headway.data.checksums import WHERE, is_intact, mapped, read_checksummed
from headway.data.paths import data_path
from headway.data.schema import BYTES, ArrayField, read_schema
from headway.data.store_writer import INDEX, VERSION, StoreWriter
from headway.errors import DataError
from headway.files import BLAKE2B, is_present, open_file

NO_HASHES: Mapping[Path, str] = {}


class Store:
    """`store[i]` returns read-only views of the mapped files, and bytes; `store.where(i)` the example's `file:line`."""

    def __init__(self, folder: Path, index: Mapping[str, Any]) -> None:
        self.folder, self.key = folder, str(index["key"])
        self.schema: dict[str, ArrayField] = read_schema(index["fields"])
        self.metadata: dict[str, Any] = index["metadata"]  # the writer's own
        self._names: list[str] = index["names"]
        self._values = {name: mapped(folder / f"{name}.bin", field.storage) for name, field in self.schema.items()}
        self._offsets = {name: mapped(folder / f"{name}.offsets.bin", "<i8") for name in self.schema}
        self._shapes = {
            name: mapped(folder / f"{name}.shapes.bin", "<i8").reshape(-1, field.rank)
            for name, field in self.schema.items()
            if field.has_shapes
        }
        self._locations = mapped(folder / f"{WHERE}.bin", "<i8").reshape(-1, 2)  # (example, [name, line])

    @classmethod
    def build(
        cls, folder: str | Path, examples: Iterable[Mapping[str, Any]], *, key: str,
        progress: Callable[[int], object] | None = None,
    ) -> Store:  # fmt: skip
        """Writes examples beside `folder` and renames them to `folder` when all are on disk.

        An example's entry "where" (`file:line`, optional) is its location. `progress` is called with the count so far.
        """
        with StoreWriter(Path(folder), key=key) as writer:
            for example in examples:
                writer.add(example)
                if progress is not None:
                    progress(writer.count)
            writer.finish()
        return cls.just_written(folder, key)

    @classmethod
    def just_written(cls, folder: str | Path, key: str) -> Store:
        store = cls.open(folder, key)
        if store is None:
            raise DataError(f"{folder}: the examples just written cannot be read back; check the disk.")
        return store

    @classmethod
    def open(cls, folder: str | Path, key: str) -> Store | None:
        """The store, or None if there is none for this key, or it is incomplete, damaged or of another format."""
        folder = Path(folder)
        index = None if folder.is_symlink() else read_checksummed(folder / INDEX)
        if index is None or (index.get("version"), index.get("key")) != (VERSION, key) or not is_intact(folder, index):
            return None
        return cls(folder, index)

    @staticmethod
    def why_unusable(folder: str | Path, key: str) -> str | None:
        """Why `open` returns None although there is a folder, in a few words; None if there is no folder."""
        if not is_present(folder):
            return None
        if Path(folder).is_symlink():
            return "the folder is a link"
        try:
            with open_file(Path(folder) / INDEX, inside=folder) as file:
                version = json.loads(file.read().decode("utf-8"))["version"]
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return "they are damaged"
        if version != VERSION:
            return f"they have format {version!r:.20}, and this version of Headway writes format {VERSION}"
        index = read_checksummed(Path(folder) / INDEX)
        if index is not None and index.get("key") != key:
            return "the data, the tokenizer or the task's settings have changed"
        return "they are damaged"

    def __len__(self) -> int:
        return len(self._locations)

    def __getitem__(self, position: int) -> dict[str, Any]:
        if not 0 <= position < len(self):
            raise IndexError(f"example {position} of {len(self)}")
        return {name: self._value(name, field, position) for name, field in self.schema.items()}

    def _value(self, name: str, field: ArrayField, position: int) -> np.ndarray | bytes:
        flat = self._values[name][self._offsets[name][position] : self._offsets[name][position + 1]]
        if field.dtype == BYTES:
            return flat.tobytes()
        if field.rank == 1:
            return flat
        return flat.reshape(self._shapes[name][position] if field.has_shapes else ())

    @property
    def fields(self) -> tuple[str, ...]:
        return tuple(self.schema)

    def lengths(self, field: str) -> np.ndarray:
        """(example,) sizes of the first dimension; 1 for bytes and numbers without dimensions."""
        if self.schema[field].has_shapes:
            return self._shapes[field][:, 0]
        return np.diff(self._offsets[field]) if self.schema[field].rank else np.ones(len(self), np.int64)

    def flat(self, field: str) -> np.ndarray:
        """The values of a field in all examples, concatenated: a token stream."""
        return self._values[field]

    def where(self, position: int) -> str:
        name, line = (int(number) for number in self._locations[position])
        return self._names[name] + (f":{line}" if line >= 0 else "")


def fingerprint(paths: str | Path | Iterable[str | Path], *, known: Mapping[Path, str] = NO_HASHES) -> str:
    """A hash of the files' contents, in order; of a folder, of all files below it. It does not depend on their path.
    `known` has BLAKE2B hashes of files that were read already."""
    hasher = BLAKE2B()
    for path in [paths] if isinstance(paths, str | Path) else paths:
        top = data_path(path)
        files = sorted(file for file in top.rglob("*") if file.is_file()) if top.is_dir() else [top]
        for file in files:
            name = file.relative_to(top).as_posix() if top.is_dir() else ""
            try:
                hasher.update(_file_entry(name, known.get(file) or _content_hash(file)))
            except OSError as error:
                raise DataError(f"{file}: cannot be read ({error.strerror}).") from error
    return hasher.hexdigest()


def _content_hash(path: Path) -> str:
    with open_file(path) as file:
        return str(hashlib.file_digest(cast(Any, file), BLAKE2B).hexdigest())


def fingerprint_of_hash(content: str) -> str:
    """`fingerprint` of a file, given the BLAKE2B hash of its content."""
    return BLAKE2B(_file_entry("", content)).hexdigest()


def _file_entry(name: str, content: str) -> bytes:
    return f"{name}\0{content}\0".encode()
