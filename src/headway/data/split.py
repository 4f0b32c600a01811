"""Train, validation and test parts: found by file name, or else decided by a hash of each example's input.

A split by hash needs no list of indices, stays the same when the file is shuffled or grows, and keeps equal inputs on
one side, so that no training input is also an evaluation input. Of few inputs, at least one is on each side.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from heapq import nsmallest
from operator import itemgetter
from pathlib import Path
from typing import Any

from headway.data.columns import matching_columns
from headway.data.paths import WORKBOOKS, as_folder, data_path, expand
from headway.data.row import Row
from headway.data.store import fingerprint, fingerprint_of_hash
from headway.errors import DataError
from headway.files import BLAKE2B
from headway.preprocess.archive import ArchivedFile

PART_NAMES = {"train": "train", "training": "train", "valid": "valid", "validation": "valid", "val": "valid",
              "dev": "valid", "development": "valid", "test": "test", "testing": "test"}  # fmt: skip
DATA_SUFFIXES = {".csv", ".tsv", ".txt", ".json", ".jsonl", ".ndjson", ".conll", ".conllu", ".bio", ".iob", ".parquet",
                 *WORKBOOKS}  # fmt: skip
INPUT_FIELDS = ("text", "text_pair", "source", "words", "question", "context", "a", "b", "messages", "prompt",
                "instruction", "input", "image", "audio")  # fmt: skip


HELD_OUT = 0.1
BORDER = int(HELD_OUT * 2**64)


@dataclass(frozen=True, slots=True)
class Parts:
    """The files of each part; a part that was not given is empty."""

    train: tuple[Path, ...]
    valid: tuple[Path, ...] = ()
    test: tuple[Path, ...] = ()


def split_hash(row: Row) -> int:
    """The hash by which a row is held out. Questions on one context stay together."""
    group = ["context"] if "context" in row.fields else input_fields(row)
    return digest(row, fields=group)


def held_out_border(hashes: Iterable[int]) -> int:
    """Rows with a smaller `split_hash` are held out: a tenth of all hashes. Where that leaves a part without rows, the
    input with the smallest hash is held out, or that with the largest is kept for training. Reads as few hashes as it
    needs."""
    least, most = 2**64, -1
    for number in hashes:
        least, most = min(least, number), max(most, number)
        if least < BORDER <= most:
            return BORDER
    if least >= most:  # one input at most
        return BORDER
    return most if most < BORDER else least + 1


def digest(row: Row, *, fields: Iterable[str]) -> int:
    """64 bits that depend on nothing but what the fields hold; in a text, space counts only as a separator."""
    hasher = hashlib.blake2b(digest_size=8)
    for name in fields:
        words = " ".join(_text(row.fields[name]).split())
        hasher.update(f"{name}\0{len(words)}\0{words}\0".encode("utf-8", "surrogatepass"))
    return int.from_bytes(hasher.digest(), "big")


def input_hash(row: Row) -> int:
    """Hash of the input fields: equal for rows that differ only in label or target."""
    return digest(row, fields=input_fields(row))


def drawn_rows(rows: Iterable[Row], count: int) -> list[Row]:
    """At most `count` of the rows, those whose input has the smallest hash, in their order: a random sample that is the
    same each time, also where the rows are sorted by label or by time."""
    hashed = ((input_hash(row), number, row) for number, row in enumerate(rows))
    return [row for _, _, row in sorted(nsmallest(count, hashed, key=itemgetter(0, 1)), key=itemgetter(1))]


def input_fields(row: Row) -> list[str]:
    """Those that a model reads; the text of a recording is what it generates."""
    if "audio" in row.fields:
        return ["audio"]
    return [name for name in INPUT_FIELDS if name in row.fields] or sorted(row.fields)


def find_parts(paths: str | Path | Iterable[str | Path], *, valid: str | Path | None = None) -> Parts:
    """The parts of a data set: a folder's train/valid/test files or folders; of several files, those with such names
    if one is named train, where others are of the train part too; or all in train."""
    parts = _find_parts([as_folder(path) for path in expand(paths)])
    return parts if valid is None else Parts(parts.train, (data_path(valid),), parts.test)


def data_files(folder: Path) -> list[Path]:
    """A folder's own data files in name order; without read-me files, licences and hidden files."""
    files = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.name.startswith(".")]
    return [path for path in files if not re.match(r"(?i)(readme|licen[cs]e|notice)", path.name)]


def bare_suffix(path: Path) -> str:
    """The suffix before `.gz`; of a sheet, that of its workbook."""
    if path.parent.suffix.lower() in WORKBOOKS:
        return path.parent.suffix.lower()
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def _find_parts(paths: list[Path]) -> Parts:
    if len(paths) != 1 or not paths[0].is_dir():
        named = _by_part(paths)
        if not named["train"] or len(named["train"]) == len(paths):
            return Parts(tuple(paths))
        held = (*named["valid"], *named["test"])
        return Parts(tuple(path for path in paths if path not in held), tuple(named["valid"]), tuple(named["test"]))
    folder = paths[0]
    found = _by_part([*data_files(folder), *sorted(path for path in folder.iterdir() if path.is_dir())])
    if not found["train"]:
        if sum(map(bool, found.values())) > 1:
            raise DataError(f"{folder}: has valid and test files but none whose name begins with train.")
        return Parts((folder,))
    for part, members in found.items():
        found[part] = _ordered(members, folder=folder, part=part)
    return Parts(tuple(found["train"]), tuple(found["valid"]), tuple(found["test"]))


def _by_part(paths: Iterable[Path]) -> dict[str, list[Path]]:
    """Those whose name begins with that of a part."""
    found: dict[str, list[Path]] = {"train": [], "valid": [], "test": []}
    for path in paths:
        if (part := PART_NAMES.get(re.split(r"[^a-z]+", path.name.lower())[0])) is not None:
            found[part].append(path)
    return found


def _ordered(members: list[Path], *, folder: Path, part: str) -> list[Path]:
    """Parallel files with the source first; DataError for several formats of the same part."""
    kinds = {bare_suffix(path) for path in members}
    if len(kinds) <= 1:
        return members
    if len(members) == 2 and not kinds & DATA_SUFFIXES:
        first = matching_columns("source", [bare_suffix(path).lstrip(".") for path in members])
        return sorted(members, key=lambda path: bare_suffix(path).lstrip(".") not in first)
    names = ", ".join(path.name for path in members)
    raise DataError(f"{folder}: several kinds of {part} files ({names}); name the one you mean.")


@lru_cache(maxsize=1 << 20)
def _file_hash(path: Path, size: int, modified: int) -> str:
    """Cached: an image's hash decides the split and is compared with those of the others."""
    return fingerprint(path)


def _text(value: Any) -> str:
    if isinstance(value, Path):
        try:
            state = value.stat()
        except OSError as error:
            raise DataError(f"{value}: cannot be read ({error.strerror}).") from error
        return _file_hash(value, state.st_size, state.st_mtime_ns)  # an image is identified by its bytes
    if isinstance(value, ArchivedFile):
        return fingerprint_of_hash(value.digest)
    if isinstance(value, bytes):
        return fingerprint_of_hash(BLAKE2B(value).hexdigest())
    if hasattr(value, "tobytes"):  # an array's repr leaves out its middle
        return hashlib.blake2b(value.tobytes(), digest_size=16).hexdigest()
    return value if isinstance(value, str) else repr(value)
