"""A file of a folder replaced by something else: not a regular file, a link, or hostile content."""

from __future__ import annotations

import os
import random
import shutil
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from support import watch

Fault = Callable[[Path, Path], None]  # (the file, a folder outside)
WAIT = 20  # seconds before a blocked reader of a pipe is released


def _pipe(path: Path, outside: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _device(path: Path, outside: Path) -> None:
    """A device under the file's own name; where only links are allowed, a link to one."""
    path.unlink()
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
    except OSError:
        path.symlink_to("/dev/zero")


def _linked_device(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _folder(path: Path, outside: Path) -> None:
    path.unlink()
    path.mkdir()


def _link_out(path: Path, outside: Path) -> None:
    """To the same content elsewhere, so that only the link is wrong."""
    target = outside / "precious"
    shutil.move(path, target)
    path.symlink_to(target)


def _dangling(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to(outside / "created")


def _content(make: Callable[[bytes], bytes]) -> Fault:
    def write(path: Path, outside: Path) -> None:
        path.write_bytes(make(path.read_bytes()))

    return write


KINDS: dict[str, Fault] = {
    "pipe": _pipe,
    "device": _device,
    "link to a device": _linked_device,
    "folder": _folder,
    "link out": _link_out,
    "dangling link": _dangling,
}
CONTENTS: dict[str, Fault] = {
    "empty": _content(lambda old: b""),
    "truncated": _content(lambda old: old[: len(old) // 2]),
    "zeros": _content(lambda old: bytes(len(old))),
    "random bytes": _content(lambda old: random.Random(len(old)).randbytes(max(len(old), 64))),
    "deep JSON": _content(lambda old: b"[" * 100_000),
    "deep objects": _content(lambda old: b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "huge number": _content(lambda old: b'{"a": ' + b"9" * 5000 + b"}"),
    "infinite number": _content(lambda old: b'{"a": 1e999, "b": NaN}'),
    "list": _content(lambda old: b"[1, 2]\n"),
    "null": _content(lambda old: b"null\n"),
    "other fields": _content(lambda old: b'{"a": {"b": [1, {"c": null}]}}\n'),
}
FAULTS = KINDS | CONTENTS


@contextmanager
def released(path: Path) -> Iterator[list[str]]:
    """Releases a process that waits for the pipe `path`, after a while. Yields a list that is not empty then."""
    waited: list[str] = []

    def release() -> None:
        if path.is_fifo():
            waited.append(f"waited for {path}")
            descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            os.close(descriptor)

    timer = threading.Timer(WAIT, release)
    timer.start()
    try:
        yield waited
    finally:
        timer.cancel()


@contextmanager
def opened_below(folder: Path) -> Iterator[list[str]]:
    """Collects the paths in `folder`, or links that lead to it, that Python code opens."""
    seen: list[str] = []

    def listen(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str | bytes):
            name = os.path.realpath(os.fsdecode(arguments[0]))
            if name.startswith(str(folder)):
                seen.append(name)

    watch._listeners.append(listen)
    try:
        yield seen
    finally:
        watch._listeners.remove(listen)
