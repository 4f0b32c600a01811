"""Opening, atomic writes and checksums of files.

Every file of a model or run folder is opened here. Only regular files are read: a named pipe would block and a device
may be endless. A link is followed while it stays in its folder, or leads from a snapshot of the Hugging Face cache to
the blobs of the same repository. Nothing is written through a link.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from io import BufferedReader
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import IO, Any, Protocol, runtime_checkable

from headway.errors import DiskError

BLAKE2B = partial(hashlib.blake2b, digest_size=16)  # of data files and the examples prepared from them
PARTIAL = ".partial"  # suffix of folders whose content is not complete
LEFTOVER = re.compile(r"\.headway-[0-9a-f]{16}\.partial")  # the name of such a folder
NEW, OLD = "new", "old"  # in it, where a folder replaces another
LOCK_SECONDS = 5.0  # to wait for another process that holds the lock of a folder
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
_tidied = set[str]()  # folders in which this process has looked for leftovers


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


class TakenError(OSError):
    """What was to be written is there already, or another process has changed it meanwhile."""

    def __init__(self, path: PathLike) -> None:
        reason = "another process has written it meanwhile; that is kept, and nothing was replaced: give another name"
        super().__init__(errno.EEXIST, reason, os.fspath(path))


@contextmanager
def atomic_write(path: PathLike, *, new: bool = False) -> Iterator[Path]:
    """Context that yields a temporary path to write to. On success the file is flushed to the disk and renamed to
    `path`; on an error it is removed and `path` is unchanged. A link is replaced; a device is not. A file that another
    process has written meanwhile is not replaced; with `new`, none is."""
    path = Path(path)
    _tidy(path.parent)
    before = identity(path)
    if new and before is not None:
        raise TakenError(path)
    if path.exists():
        _require_regular(path, path.stat().st_mode)
    with workplace(path.parent) as work:
        temporary = work / path.name
        yield temporary
        fsync(temporary)
        with folder_lock(path.parent):
            if identity(path) != before:
                raise TakenError(path)
            os.replace(temporary, path)
    fsync(path.parent)


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Context that yields a temporary folder. On success its files are flushed to the disk and it replaces `path`,
    unless another process has written that meanwhile; on an error it is removed."""
    _tidy(path.parent)
    before = identity(path)
    with workplace(path.parent) as work:
        temporary = work / NEW / path.name
        temporary.mkdir(parents=True)
        yield temporary
        flush_folder(temporary)
        with folder_lock(path.parent):
            if identity(path) != before:
                raise TakenError(path)
            if before is not None:
                (work / OLD).mkdir()
                os.rename(path, work / OLD / path.name)
            os.rename(temporary, path)
    fsync(path.parent)


def identity(path: PathLike) -> tuple[int, ...] | None:
    """What changes when another file is renamed to this name, or it is written to; None if there is nothing."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@contextmanager
def workplace(folder: Path) -> Iterator[Path]:
    """A new folder in `folder` for what is not complete, removed at the end. It is locked as long as it is in use: one
    without a lock is of a process that was killed, and is removed when the next process writes into `folder`."""
    _tidy(folder)
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        work = folder / f".headway-{secrets.token_hex(8)}{PARTIAL}"
        work.mkdir()
        with _opened_folder(work) as descriptor:
            if _lock(descriptor) is False or not work.exists():
                continue  # taken for a leftover before it was locked
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
        return


def _tidy(folder: Path) -> None:
    """Remove leftovers, once in a process."""
    if (place := os.path.realpath(folder)) not in _tidied:
        _tidied.add(place)
        remove_leftovers(folder)


def remove_leftovers(folder: Path, *, alone: bool = False) -> None:
    """Remove what killed processes have left in `folder`, and complete the replacement of a folder. `alone`: no other
    process writes there, so that what cannot be locked is a leftover too."""
    with suppress(OSError), os.scandir(folder) as entries:
        for name in [entry.name for entry in entries if LEFTOVER.fullmatch(entry.name)]:
            with suppress(OSError), _opened_folder(folder / name) as descriptor:
                locked = _lock(descriptor)
                if locked or (alone and locked is None):
                    for old in (folder / name / OLD).glob("*"):
                        new = folder / name / NEW / old.name
                        if new.exists() and not is_present(folder / old.name):
                            os.rename(new, folder / old.name)
                    shutil.rmtree(folder / name, ignore_errors=True)


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, for the moment in which something is compared and renamed."""
    with _opened_folder(folder) as descriptor:
        deadline = monotonic() + LOCK_SECONDS
        while _lock(descriptor) is False:
            if monotonic() > deadline:
                raise OSError(errno.EBUSY, f"another process has been writing for {LOCK_SECONDS:g} s", str(folder))
            sleep(0.01)
        yield


@contextmanager
def _opened_folder(folder: Path) -> Iterator[int | None]:
    """A descriptor of a folder; None where folders cannot be opened."""
    if os.name != "posix":
        yield None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _lock(descriptor: int | None) -> bool | None:
    """Lock an opened folder: whether that is possible now, or None where there are no locks."""
    try:
        import fcntl

        if descriptor is None:
            return None
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return None


def remove(path: Path) -> None:
    """Remove a file, a link or a folder if it exists. A folder is renamed first, so that a half-removed one is never
    read."""
    if path.is_dir() and not path.is_symlink():
        if LEFTOVER.fullmatch(path.name) is None:
            path = path.rename(path.with_name(f".headway-{secrets.token_hex(8)}{PARTIAL}"))
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def flush_folder(path: Path) -> None:
    """Flush a folder with everything in it to the disk."""
    for each in (*path.rglob("*"), path):
        fsync(each)


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
        reason, shown = error.strerror or str(error), _final_path(path)
        if error.errno not in NO_SPACE:
            raise DiskError(f"{shown}: cannot be written ({reason})") from error
        raise DiskError(
            f"{shown}: cannot be written ({reason}): {needed:,} bytes are needed and {_free_space(path)}. {advice}"
        ) from error


def _final_path(path: Path) -> Path:
    """Where a file will be that is written to a temporary folder."""
    parts: list[str] = []
    for before, part in pairwise(["", *path.parts]):
        if LEFTOVER.fullmatch(part) is None and not (part == NEW and LEFTOVER.fullmatch(before)):
            parts.append(part)
    return Path(*parts)


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
