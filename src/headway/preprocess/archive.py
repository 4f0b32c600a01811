"""Files in a zip archive, read where they are: nothing is unpacked to the disk, so no name can lead out of a folder."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import IO

from headway.errors import DataError
from headway.files import BLAKE2B, require_file

MAX_FILES = 5_000_000
# What reading from a damaged archive raises, beside OSError.
DAMAGED = (EOFError, RuntimeError, NotImplementedError, zlib.error, zipfile.BadZipFile)
UNPACK_RATIO, UNPACK_FREE = 200, 1 << 28  # all files together, over the archive's size; applied above this many bytes


@dataclass(frozen=True)
class ArchivedFile:
    """One file of an archive; `str` is its path through the archive."""

    archive: zipfile.ZipFile = field(repr=False)
    path: Path  # of the archive
    name: PurePosixPath  # in the archive
    size: int  # bytes, as the archive declares

    def __str__(self) -> str:
        return f"{self.path}/{self.name}"

    def read(self, *, limit: int) -> bytes:
        """At most `limit` bytes are unpacked, whatever the archive declares. Threads may read at the same time."""
        if self.size > limit:
            raise DataError(f"{self}: more than {limit:,} bytes; make the file smaller")
        try:
            with self.archive.open(str(self.name)) as opened:
                return opened.read(limit)
        except (OSError, *DAMAGED) as error:
            raise DataError(f"{self}: cannot be read from the archive ({error})") from error

    def open(self) -> IO[bytes]:
        """A stream of the content; no more is unpacked than the archive declares."""
        try:
            return self.archive.open(str(self.name))
        except (OSError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
            raise DataError(f"{self}: cannot be read from the archive ({error})") from error

    @cached_property
    def digest(self) -> str:
        """BLAKE2B of the content."""
        return BLAKE2B(self.read(limit=self.size)).hexdigest()


def archived_files(path: Path) -> Iterator[ArchivedFile]:
    """The files of an archive in name order, without hidden ones and macOS's metadata. DataError for an archive that is
    damaged or encrypted, has names that lead out of it, or declares far more bytes than it has."""
    try:
        require_file(path)
        archive = zipfile.ZipFile(path)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not a zip archive, or a damaged one ({error})") from error
    members = refuse_bomb(archive, path, packed=path.stat().st_size)
    for member in sorted(members, key=lambda member: member.filename):
        name = PurePosixPath(member.filename)
        if (
            not name.parts
            or name.is_absolute()
            or ".." in name.parts
            or "\\" in member.filename
            or ":" in name.parts[0]
        ):
            raise DataError(f"{path}: the name {member.filename[:200]!r} leads out of the archive; pack it again")
        if member.flag_bits & 1:
            raise DataError(f"{path}/{name}: encrypted; give an archive without a password")
        if name.parts[0] != "__MACOSX" and not any(part.startswith(".") for part in name.parts):
            yield ArchivedFile(archive, path, name, member.file_size)


def refuse_bomb(archive: zipfile.ZipFile, path: Path, *, packed: int) -> list[zipfile.ZipInfo]:
    """The entries of an archive of `packed` bytes that are files; DataError if they declare far more bytes than it
    has."""
    members = [member for member in archive.infolist() if not member.filename.endswith("/")]
    total = sum(member.file_size for member in members)
    if len(members) > MAX_FILES or total > max(UNPACK_FREE, UNPACK_RATIO * packed):
        raise DataError(
            f"{path}: declares {len(members):,} files of {total:,} bytes in an archive of {packed:,}; an archive of "
            "data has far fewer"
        )
    return members
