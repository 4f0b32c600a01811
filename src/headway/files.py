"""Opening, atomic writes and checksums of files.

Every file of a model or run folder is opened here. Only regular files are read: a named pipe would block and a device
may be endless. A link is followed while it stays in its folder, or leads from a snapshot of the Hugging Face cache to
the blobs of the same repository. Nothing is written through a link.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from headway.errors import DiskError

BLAKE2B = partial(hashlib.blake2b, digest_size=16)  # of data files and the examples prepared from them
PARTIAL = ".partial"  # suffix of files and folders that are not complete
NO_SPACE = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
NO_WAITING = getattr(os, "O_NONBLOCK", 0)  # flags that not every system has
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}

PathLike = str | os.PathLike[str]


class RefusedFileError(OSError):
    """Not a regular file, or a link out of its folder; `strerror` says which."""

    def __init__(self, path: PathLike, reason: str) -> None:
        super().__init__(errno.EINVAL, reason, os.fspath(path))


@runtime_checkable
class PackedPath(Protocol):
    """A path into an archive: it opens itself."""

    def open_bytes(self) -> BufferedReader: ...


def open_file(path: PathLike, *, inside: PathLike | None = None) -> BufferedReader:
    """Open a regular file for reading, without waiting for anything. `inside` is a folder that links may not leave."""
    if isinstance(path, PackedPath):
        return path.open_bytes()
    require_file(path, inside=inside)
    return open(path, "rb", opener=partial(_open_regular, path))


def append_file(path: PathLike, *, buffering: int = -1) -> IO[bytes]:
    """Open a regular file for reading and appending, and create it if it does not exist. Links are not followed."""
    if os.path.islink(path):
        raise RefusedFileError(path, "a link, which is not written through")
    if os.path.exists(path):
        require_file(path)
    return open(path, "a+b", buffering=buffering, opener=partial(_open_regular, path, more=NO_LINK))


def require_file(path: PathLike, *, inside: PathLike | None = None) -> None:
    """Raise unless it is a regular file, which a library may open by name. `inside`: as of `open_file`."""
    if inside is not None:
        require_inside(path, inside)
    _require_regular(path, os.stat(path).st_mode)


def require_inside(path: PathLike, folder: PathLike) -> None:
    """Raise if a link leads from a path in `folder` out of it."""
    target = Path(os.path.realpath(path))
    if not any(target.is_relative_to(root) for root in _allowed_roots(Path(os.path.realpath(folder)))):
        raise RefusedFileError(path, f"a link that leaves the folder, to {target}")


def is_present(path: PathLike) -> bool:
    """Whether there is anything under this name. A dangling link is something: opening it is an error."""
    return os.path.lexists(path)


def _open_regular(path: PathLike, name: str, flags: int, *, more: int = 0) -> int:
    descriptor = os.open(name, flags | NO_WAITING | more, 0o666)
    try:
        _require_regular(path, os.fstat(descriptor).st_mode)
    except RefusedFileError:
        os.close(descriptor)
        raise
    return descriptor


def _require_regular(path: PathLike, mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise RefusedFileError(path, f"{KINDS.get(stat.S_IFMT(mode), 'something else')}, not a regular file")


def _allowed_roots(folder: Path) -> list[Path]:
    """Folders to which links may lead. In the Hugging Face cache the files of a snapshot are links into `blobs`."""
    for root in (folder, *folder.parents):
        if root.parent.name == "snapshots" and root.parents[1].name.startswith("models--"):
            repository = root.parents[1]
            return [folder, repository / "blobs", repository.parent / "blobs"]
    return [folder]


@contextmanager
def atomic_write(path: PathLike) -> Iterator[Path]:
    """Context that yields a temporary path beside `path` to write to. On success the file is flushed to the disk and
    renamed to `path`; on an error it is removed and `path` is unchanged. A link is replaced; a device is not."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        _require_regular(path, path.stat().st_mode)
    remove(temporary)  # it may be anything, also a link
    try:
        yield temporary
        fsync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    fsync(path.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Context that yields a temporary folder beside `path`. On success its files are flushed to the disk and it
    replaces `path`; on an error it is removed."""
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    remove(temporary)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            fsync(file)
        fsync(temporary)
        remove(path)
        temporary.rename(path)
    finally:
        remove(temporary)
    fsync(path.parent)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder if it exists. A folder is renamed first, so that a half-removed one is never
    read."""
    if path.is_dir() and not path.is_symlink():
        if not path.name.endswith(PARTIAL):
            path = path.rename(path.with_name(f".{path.name}.old{PARTIAL}"))
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def fsync(path: Path) -> None:
    """Flush a file or folder to the disk. Only POSIX can open a folder; elsewhere folders are skipped."""
    if os.name != "posix" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY if os.name == "posix" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def disk_errors(path: Path, needed: int, *, advice: str = "Free some space and try again") -> Iterator[None]:
    """Turn a failed write into a DiskError with its path; if there is no space, with the bytes needed and free."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno not in NO_SPACE:
            raise DiskError(f"{path}: cannot be written ({reason})") from error
        raise DiskError(
            f"{path}: cannot be written ({reason}): {needed:,} bytes are needed and {_free_space(path)}. {advice}"
        ) from error


def _free_space(path: Path) -> str:
    folder = next(parent for parent in path.absolute().parents if parent.is_dir())
    free = f"{shutil.disk_usage(folder).free:,} are free"
    if hasattr(os, "statvfs") and os.statvfs(folder).f_favail == 0 < os.statvfs(folder).f_files:
        return f"{free}, but the disk cannot hold another file (no free inodes): remove files"
    return free


def sha256(path: PathLike, *, inside: PathLike | None = None) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return str(file_hash(path, inside=inside).hexdigest())


def file_hash(path: PathLike, algorithm: Callable[[], Any] = hashlib.sha256, *, inside: PathLike | None = None) -> Any:
    """The hash object of a file, which can be updated with bytes appended to it."""
    with open_file(path, inside=inside) as file:
        return hashlib.file_digest(file, algorithm)
