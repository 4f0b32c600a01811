"""Atomic writes, checksums and locks of files."""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

from headway.errors import HeadwayError

BLAKE2B = partial(hashlib.blake2b, digest_size=16)  # of data files and the examples prepared from them
PARTIAL = ".partial"  # suffix of files and folders that are not complete
LOCKED_BYTE = 1 << 20  # offset of the byte that Windows locks, beyond the content


class LockedError(HeadwayError):
    """Another process holds a lock. `holder` is its id."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path}: locked by process {holder}")
        self.holder = holder


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Context that yields a temporary path beside `path` to write to. On success the file is flushed to the disk and
    renamed to `path`; on an error it is removed and `path` is unchanged."""
    path = Path(path)
    temporary = path.with_name(f".{path.name}{PARTIAL}")
    path.parent.mkdir(parents=True, exist_ok=True)
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
    """Remove a file or a folder if it exists. A folder is renamed first, so that a half-removed one is never read."""
    if path.is_dir():
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


def sha256(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    return file_hash(path).hexdigest()


def file_hash(path: str | os.PathLike[str], algorithm: Callable[[], Any] = hashlib.sha256) -> Any:
    """The hash object of a file, which can be updated with bytes appended to it."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm)


@contextmanager
def lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on a file, which contains the id of this process and is removed at the end. Raises
    LockedError if another process holds it. The lock ends with the process, however it ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        while True:
            file = held.enter_context(open(path, "a+"))
            held.enter_context(_locked(file, path))
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                break
            held.close()  # the holder before has just removed this file
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):  # Windows does not remove open files
                path.unlink()


@contextmanager
def _locked(file: IO[str], path: Path) -> Iterator[None]:
    try:
        import fcntl
    except ImportError:
        with _locked_on_windows(file, path) if sys.platform == "win32" else _locked_by_creation(path):
            yield
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(path, _holder(path)) from None
    yield


@contextmanager
def _locked_on_windows(file: IO[str], path: Path) -> Iterator[None]:
    if sys.platform == "win32":  # for the type checker
        import msvcrt

        os.lseek(file.fileno(), LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        except OSError:
            raise LockedError(path, _holder(path)) from None
    yield


@contextmanager
def _locked_by_creation(path: Path) -> Iterator[None]:
    """Where the system has no file locks: a second file, created exclusively. One whose process is gone is ignored."""
    marker = path.with_name(path.name + ".held")
    while True:
        try:
            descriptor = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            holder = _holder(marker)
            if not holder.isdigit() or _is_running(int(holder)):
                raise LockedError(path, holder) from None
            marker.unlink(missing_ok=True)
    os.write(descriptor, str(os.getpid()).encode())
    os.close(descriptor)
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def _holder(path: Path) -> str:
    with suppress(OSError):
        return path.read_text().strip() or "unknown"
    return "unknown"


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # not ours to signal, so it exists
        return True
    return True
