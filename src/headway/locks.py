"""Locks of files, one holder each. A lock ends with its process, however that ends."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from headway.errors import HeadwayError
from headway.files import append_file, open_file

LOCKED_BYTE = 1 << 20  # offset of the byte that Windows locks, beyond the content
INSTANT, PAUSE = 0.1, 0.02  # seconds that `is_locked` may hold a lock, and between two tries
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)  # errors of file systems without locks


class LockedError(HeadwayError):
    """Another process holds a lock. `holder` is its id."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path}: locked by process {holder}")
        self.holder = holder


@contextmanager
def lock(path: Path, *, wait: float = INSTANT) -> Iterator[str | None]:
    """Hold an exclusive lock on a file, which contains the id of this process and is removed at the end. Raises
    LockedError if another process, or thread, holds it for longer than `wait` seconds. Yields a warning where the file
    system has no locks, else None."""
    deadline = monotonic() + wait
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as held:
        while True:
            try:
                file = held.enter_context(append_file(path))
                warning = held.enter_context(_locked(file, path))
            except LockedError:
                held.close()
                if monotonic() > deadline:
                    raise
                sleep(PAUSE)
                continue
            if _is_at(file, path):
                break
            held.close()  # the holder before has just removed this file
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        try:
            yield warning
        finally:
            with suppress(OSError):  # Windows does not remove open files
                if _is_at(file, path):  # its folder may have been removed, and another process begun anew
                    path.unlink()


def _is_at(file: IO[bytes], path: Path) -> bool:
    return path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file. A file that remains after its process has ended is not locked."""
    try:
        with open_file(path, inside=path.parent) as file:
            return _is_held(file, path)
    except FileNotFoundError:
        return False


def _is_held(file: IO[bytes], path: Path) -> bool:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: two that look do not see each other
    except ImportError:
        try:
            with _locked(file, path):
                return False
        except LockedError:
            return True
    except BlockingIOError:
        return True
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    marker = _marker(path)
    return marker.exists() and _may_be_running(_holder(marker))


@contextmanager
def _locked(file: IO[bytes], path: Path) -> Iterator[str | None]:
    try:
        import fcntl
    except ImportError:
        with _locked_on_windows(file, path) if sys.platform == "win32" else _locked_by_creation(path):
            yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise LockedError(path, _holder(path)) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
        with _locked_by_creation(path):
            yield (
                f"{path}: this file system has no locks ({error.strerror}); a second process is found by the file "
                f"{_marker(path).name} only. If a machine stops without removing it, remove it by hand"
            )
        return
    yield None


@contextmanager
def _locked_on_windows(file: IO[bytes], path: Path) -> Iterator[None]:
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
    """Where there are no file locks: a second file, created exclusively, with the ids of the process and its machine.
    One whose process is gone from this machine is ignored."""
    marker = _marker(path)
    while True:
        try:
            descriptor = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            break
        except FileExistsError:
            if _may_be_running(holder := _holder(marker)):
                raise LockedError(path, holder) from None
            marker.unlink(missing_ok=True)
    os.write(descriptor, f"{os.getpid()} on {socket.gethostname()}".encode())
    os.close(descriptor)
    try:
        yield
    finally:
        marker.unlink(missing_ok=True)


def _marker(path: Path) -> Path:
    return path.with_name(path.name + ".held")


def _holder(path: Path) -> str:
    with suppress(OSError), open_file(path, inside=path.parent) as file:
        text = file.read(200).decode(errors="replace").strip()
        return text if text and text.isprintable() else "unknown"
    return "unknown"


def _may_be_running(holder: str) -> bool:
    """Whether "process on machine" may be running: False only for a process of this machine that is gone."""
    process, _, machine = holder.partition(" on ")
    return not process.isdigit() or machine != socket.gethostname() or _is_running(int(process))


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # not ours to signal, so it exists
        return True
    return True
