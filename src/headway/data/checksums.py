"""Data room: what a store's folder says of itself, and whether it is so.

An index (of a store) and a mark (of one that is being written) name the fields, every file with size and checksum, and
the files that examples came from. Both bear a checksum of their own, which tells of accidents, not of lies: either
may come from anywhere, so all it says is held against the files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from headway.files import BLAKE2B, atomic_write, file_hash

WHERE = "where"
CHUNK = 1 << 20
WHOLE = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


def is_intact(folder: Path, said: Mapping[str, Any]) -> bool:
    """Whether the files are those that an index or a mark tells of, and what they say of each other holds."""
    try:
        return (
            _is_listed(folder, said)
            and _is_told(folder, said["names"], said["note"])
            and _is_cut(folder, said["fields"])
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _is_listed(folder: Path, said: Mapping[str, Any]) -> bool:
    """The fields have plain names and whole numbers; the files are theirs, and as they were."""
    types, files = said["fields"], said["files"]
    if not types or set(files) != file_names(types) or not set(types.values()) <= WHOLE:
        return False
    return all(_same(folder / name, entry) for name, entry in files.items())


def _is_told(folder: Path, names: Any, note: Any) -> bool:
    """Every example has a place, in a file that is named."""
    places = mapped(folder / f"{WHERE}.bin", "int64")
    if not len(places) or len(places) % 2 or not isinstance(names, list) or not isinstance(note, dict):
        return False
    if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
        return False
    return bool(places[0::2].min() >= 0 and places[0::2].max() < len(names))


def _is_cut(folder: Path, types: Mapping[str, str]) -> bool:
    """Every field has as many values as its offsets say, cut into as many examples as there are places."""
    count = len(mapped(folder / f"{WHERE}.bin", "int64")) // 2
    return all(_fit(folder, name, dtype, count=count) for name, dtype in types.items())


def _fit(folder: Path, name: str, dtype: str, *, count: int) -> bool:
    offsets, size = mapped(folder / f"{name}.offsets.bin", "int64"), (folder / f"{name}.bin").stat().st_size
    ends = len(offsets) == count + 1 and offsets[0] == 0 and offsets[-1] * np.dtype(dtype).itemsize == size
    return bool(ends) and all(
        bool((np.diff(offsets[at : at + CHUNK + 1]) >= 0).all()) for at in range(0, len(offsets), CHUNK)
    )


def mapped(path: Path, dtype: str) -> np.ndarray:
    if path.stat().st_size == 0:  # nothing to map
        return np.empty(0, dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def _same(path: Path, entry: Mapping[str, Any]) -> bool:
    return (
        not path.is_symlink()
        and bool(path.stat().st_size == entry["bytes"])
        and file_hash(path, BLAKE2B).hexdigest() == entry["checksum"]
    )


def file_names(fields: Iterable[str]) -> set[str]:
    """The files of a store with these fields; none if a field's name is more than a name."""
    names = list(fields)
    if not all(map(str.isidentifier, names)):
        return set()
    return {f"{WHERE}.bin", *(f"{name}{end}" for name in names for end in (".bin", ".offsets.bin"))}


def write_checksummed(path: Path, value: Mapping[str, Any]) -> None:
    """JSON with a checksum of itself, replaced whole or not at all."""
    with atomic_write(path) as partial:
        partial.write_text(json.dumps({**value, "seal": _seal(value)}), encoding="utf-8")


def read_checksummed(path: Path) -> dict[str, Any] | None:
    """What `write_checksummed` wrote, or None."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        return value if isinstance(value, dict) and value.pop("seal", None) == _seal(value) else None
    except (OSError, ValueError, RecursionError):
        return None


def _seal(value: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()
