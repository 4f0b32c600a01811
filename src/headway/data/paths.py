"""Paths of data: of files, of files in a zip archive (`data.zip/train.csv`), of sheets of a workbook (`book.xlsx/May`),
and patterns (`data/*.csv`).

A path into an archive or a workbook is a `Path` like any other for those who ask for its name or its parts, or list a
folder; `open_file` reads its bytes. Nothing is unpacked to the disk.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import IO

from headway.errors import DataError
from headway.files import open_file
from headway.preprocess.archive import ArchivedFile, archived_files

ARCHIVES = (".zip",)
WORKBOOKS = (".xlsx", ".xlsm")
WILDCARDS = "*?["


class ArchivePath(type(Path())):  # type: ignore[misc]
    """A file or folder in a zip archive."""

    @property
    def archive(self) -> Path:
        found = container(self, ARCHIVES)
        assert found is not None
        return found

    @property
    def _inside(self) -> tuple[str, ...]:
        return self.parts[len(self.archive.parts) :]

    def is_file(self) -> bool:
        return self._inside in members(self.archive)

    def is_dir(self) -> bool:
        inside = self._inside
        return not self.is_file() and any(
            len(name) > len(inside) and name[: len(inside)] == inside for name in members(self.archive)
        )

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self.is_file() or self.is_dir()

    def iterdir(self) -> Iterator[ArchivePath]:
        inside = self._inside
        below = (name for name in members(self.archive) if len(name) > len(inside) and name[: len(inside)] == inside)
        return (self / name for name in dict.fromkeys(name[len(inside)] for name in below))

    def rglob(self, pattern: str) -> Iterator[ArchivePath]:
        """The files below, for the pattern `*`."""
        assert pattern == "*"
        inside = self._inside
        names = [name for name in members(self.archive) if len(name) > len(inside) and name[: len(inside)] == inside]
        return (self.joinpath(*name[len(inside) :]) for name in names)

    @property
    def size(self) -> int:
        return members(self.archive)[self._inside].size

    def open_bytes(self) -> IO[bytes]:
        return members(self.archive)[self._inside].open()


class SheetPath(type(Path())):  # type: ignore[misc]
    """A sheet of a workbook; its bytes are the workbook's."""

    @property
    def workbook(self) -> Path:
        return data_path(str(self.parent))

    def open_bytes(self) -> IO[bytes]:
        return open_file(self.workbook)

    def is_file(self) -> bool:
        return self.workbook.is_file()

    def is_dir(self) -> bool:
        return False

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self.is_file()


def data_path(path: str | Path) -> Path:
    """The path of data that a text names."""
    if isinstance(path, ArchivePath | SheetPath):
        return path
    path = Path(path)
    if path.parent.suffix.lower() in WORKBOOKS and (container(path, WORKBOOKS) or container(path, ARCHIVES)):
        return SheetPath(path)
    inside = container(path, ARCHIVES)
    return ArchivePath(path) if inside is not None and inside != path else path


def as_folder(path: Path) -> Path:
    """A zip archive as a folder: the one that all its files are in. Other paths as they are."""
    if isinstance(path, ArchivePath) or container(path, ARCHIVES) != path:
        return path
    folder = ArchivePath(path)
    while len(entries := list(folder.iterdir())) == 1 and entries[0].is_dir():
        folder = entries[0]
    return folder


def container(path: Path, suffixes: tuple[str, ...]) -> Path | None:
    """The file with one of these suffixes that a path is, or leads into."""
    for each in (path, *path.parents):
        if each.suffix.lower() in suffixes and os.path.isfile(each):
            return Path(each)
    return None


def expand(paths: str | Path | Iterable[str | Path]) -> list[Path]:
    """The paths that are given, and in the place of a pattern the files that match it, sorted by name."""
    out: list[Path] = []
    for each in [paths] if isinstance(paths, str | Path) else paths:
        if not any(letter in str(each) for letter in WILDCARDS) or exists(data_path(each)):
            out.append(data_path(each))
        elif found := sorted(glob.glob(os.path.expanduser(str(each)), recursive=True)):
            out += map(data_path, found)
        else:
            raise DataError(f"{str(each)[:200]}: no file matches this pattern")
    return out


def exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # not a possible file name, for example a whole text
        return False


def size_of(path: Path) -> int:
    """Bytes of a data file."""
    if isinstance(path, ArchivePath):
        return path.size
    return size_of(path.workbook) if isinstance(path, SheetPath) else path.stat().st_size


def members(archive: Path) -> Mapping[tuple[str, ...], ArchivedFile]:
    """The files of an archive by the parts of their names, in name order."""
    state = archive.stat()
    return _members(archive, state.st_size, state.st_mtime_ns)


@lru_cache(maxsize=4)
def _members(archive: Path, size: int, modified: int) -> Mapping[tuple[str, ...], ArchivedFile]:
    return {file.name.parts: file for file in archived_files(archive)}
