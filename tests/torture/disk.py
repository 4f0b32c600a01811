"""Simulates a power cut in a child process: only what was flushed to the disk remains.

It models the worst case of ext4 and similar file systems: the length of a file may be stored before its bytes, which
are then zeros; a rename may be lost unless its folder was flushed afterwards.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from headway.checkpoints.save import write_safetensors
from headway.training import state


class Disk:
    """Cuts the power at the n-th event: a file written, a flush, a rename."""

    def __init__(self, folder: Path, *, moment: int, random: Random) -> None:
        self.folder, self.left, self.random = folder, moment, random
        self.flushed: dict[int, int] = {}  # inode → bytes flushed
        self.renames: list[tuple[Path, Path]] = []  # not flushed

    def install(self) -> None:
        """Patch the functions for good; call it in a child only."""
        rename, replace = os.rename, os.replace

        def fsync(descriptor: int) -> None:
            self._moment()
            found = os.fstat(descriptor)
            self.flushed[found.st_ino] = found.st_size
            self.renames = [pair for pair in self.renames if pair[1].parent.stat().st_ino != found.st_ino]

        def renamed(path: Path, target: Path, *, by: Any = rename) -> None:
            self._moment()
            by(path, target)
            self.renames.append((Path(path), Path(target)))

        def saved(*args: object, **options: object) -> None:
            write_safetensors(*args, **options)  # type: ignore[arg-type]
            self._moment()

        os.fsync, state.write_safetensors = fsync, saved  # type: ignore[assignment]
        os.rename, os.replace = renamed, partial(renamed, by=replace)  # type: ignore[assignment]
        self._rename = rename

    def _moment(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._cut()
            os.kill(os.getpid(), signal.SIGKILL)

    def _cut(self) -> None:
        for source, target in reversed(self.renames):
            if self.random.random() < 0.5 and target.exists() and not source.exists():
                source.parent.mkdir(parents=True, exist_ok=True)  # removed since
                self._rename(target, source)
        for path in self.folder.rglob("*"):
            if path.is_file():
                found = path.stat()
                safe = self.flushed.get(found.st_ino, 0)
                if found.st_size > safe:
                    with path.open("r+b") as file:
                        file.seek(safe)
                        file.write(bytes(found.st_size - safe))
