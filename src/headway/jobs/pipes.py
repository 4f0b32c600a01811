"""`run --file` reads pipes too: standard input (`-`) and process substitution. No other file may be a pipe."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from headway.errors import DataError, InputError
from headway.files import NO_WAITING, PackedPath

STANDARD_INPUT = Path("-")


@contextmanager
def regular_file(path: Path) -> Iterator[Path]:
    """A regular file with the content of `path`: the file itself, or a temporary copy of a pipe, read to its end. A
    format is detected by reading a file twice, which a pipe does not allow."""
    if path != STANDARD_INPUT and not _is_pipe(path):
        yield path
        return
    name = "standard input" if path == STANDARD_INPUT else str(path)
    with TemporaryDirectory(prefix="headway-") as folder:
        copy = Path(folder) / "inputs.txt"
        with _opened(path) as source, copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        if not copy.stat().st_size:
            raise InputError(f"{name}: nothing was written to this pipe")
        try:
            yield copy
        except (DataError, InputError) as error:
            raise type(error)(str(error).replace(str(copy), name)) from error


def _is_pipe(path: Path) -> bool:
    return not isinstance(path, PackedPath) and path.exists() and stat.S_ISFIFO(path.stat().st_mode)


def _opened(path: Path) -> IO[bytes]:
    if path == STANDARD_INPUT:
        return os.fdopen(os.dup(sys.stdin.fileno()), "rb")
    descriptor = os.open(path, os.O_RDONLY | NO_WAITING)  # a pipe without a writer is empty
    os.set_blocking(descriptor, True)
    return os.fdopen(descriptor, "rb")
