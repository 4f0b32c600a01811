"""Checksums of a store's files, and the check of its index against them.

A store's index, and the progress file of a store that is being written, list the fields, every file with its size and
checksum, and the names of the data files that the examples come from. Both contain a checksum of their own. It detects
accidents, not forgery: every statement of an index is verified against the files before they are used.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from headway.data.schema import BYTES, ArrayField, read_schema
from headway.errors import ConfigError
from headway.files import BLAKE2B, atomic_write, file_hash, open_file
from headway.validation import from_dict

WHERE = "where"  # of every example: number of the data file, line
CHUNK = 1 << 20


class StoreFile(TypedDict):
    bytes: int
    checksum: str


class Index(TypedDict):
    version: int
    key: str
    fields: dict[str, Any]
    names: list[str]
    files: dict[str, StoreFile]
    metadata: dict[str, Any]


def is_intact(folder: Path, index: Mapping[str, Any]) -> bool:
    """Whether the files match their checksums and agree with the index and each other."""
    try:
        checked: Index = from_dict(Index, index, path="index")
        schema = read_schema(checked["fields"])
        return (
            _files_match(folder, schema, checked["files"])
            and _locations_valid(folder, checked["names"])
            and _fields_valid(folder, schema)
        )
    except (OSError, ValueError, OverflowError, ConfigError):
        return False


def file_names(schema: Mapping[str, ArrayField]) -> set[str]:
    """The files of a store with these fields."""
    return {f"{WHERE}.bin", *(file for name, field in schema.items() for file in field.files(name))}


def _files_match(folder: Path, schema: Mapping[str, ArrayField], files: Mapping[str, StoreFile]) -> bool:
    return (
        WHERE not in schema
        and set(files) == file_names(schema)
        and all(_file_matches(folder / name, entry) for name, entry in files.items())
    )


def _file_matches(path: Path, entry: StoreFile) -> bool:
    return (
        bool(path.stat().st_size == entry["bytes"])
        and file_hash(path, BLAKE2B, inside=path.parent).hexdigest() == entry["checksum"]
    )


def _locations_valid(folder: Path, names: list[str]) -> bool:
    """Whether every example has a location, in a data file that is named."""
    locations = mapped(folder / f"{WHERE}.bin", "<i8")
    if not len(locations) or len(locations) % 2 or len(set(names)) != len(names):
        return False
    return bool(locations[0::2].min() >= 0 and locations[0::2].max() < len(names))


def _fields_valid(folder: Path, schema: Mapping[str, ArrayField]) -> bool:
    count = len(mapped(folder / f"{WHERE}.bin", "<i8")) // 2
    return all(_field_valid(folder, name, field, count=count) for name, field in schema.items())


def _field_valid(folder: Path, name: str, field: ArrayField, *, count: int) -> bool:
    """Whether the offsets cut the values into `count` examples, and the shapes have as many values as these."""
    offsets, size = mapped(folder / f"{name}.offsets.bin", "<i8"), (folder / f"{name}.bin").stat().st_size
    if len(offsets) != count + 1 or offsets[0] != 0 or offsets[-1] * field.storage.itemsize != size:
        return False
    shapes = mapped(folder / f"{name}.shapes.bin", "<i8") if field.has_shapes else None
    if shapes is not None and len(shapes) != count * field.rank:
        return False
    for at in range(0, count, CHUNK):
        sizes = np.diff(offsets[at : at + CHUNK + 1])
        if (sizes < 0).any() or (field.rank == 0 and field.dtype != BYTES and (sizes != 1).any()):
            return False
        if shapes is not None and not _shapes_valid(shapes[at * field.rank : (at + CHUNK) * field.rank], field, sizes):
            return False
    return True


def _shapes_valid(flat: np.ndarray, field: ArrayField, sizes: np.ndarray) -> bool:
    shapes = flat.reshape(-1, field.rank)
    products = shapes.prod(1, dtype=np.float64)  # approximate, but shows where the exact product overflows
    return bool((shapes >= 0).all() and (products < 2**53).all() and (shapes.prod(1) == sizes).all())


def mapped(path: Path, dtype: str | np.dtype[Any]) -> np.ndarray:
    with open_file(path, inside=path.parent) as file:
        if os.fstat(file.fileno()).st_size == 0:  # cannot be mapped
            return np.empty(0, dtype)
        return np.memmap(file, dtype=dtype, mode="r")


def write_checksummed(path: Path, value: Mapping[str, Any]) -> None:
    """Writes JSON with a checksum of itself, atomically."""
    with atomic_write(path) as partial:
        partial.write_text(json.dumps({**value, "checksum": json_checksum(value)}), encoding="utf-8")


def read_checksummed(path: Path) -> dict[str, Any] | None:
    """What `write_checksummed` wrote; None if there is no such file or it is damaged."""
    try:
        with open_file(path, inside=path.parent) as file:
            value = json.loads(file.read().decode("utf-8"))
        return value if isinstance(value, dict) and value.pop("checksum", None) == json_checksum(value) else None
    except (OSError, ValueError, RecursionError):
        return None


def json_checksum(value: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
