"""A power cut, in the child that meets it: of everything written only what was forced onto the disk is there after.

The model of ext4 and its kind at their worst: a file's length may be known before its bytes, which are then zeros; a
rename may or may not have been kept unless the folder it happened in was flushed after it.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

from safetensors.torch import save_file

from headway.training import state


class Disk:
    """Cuts the power at the n-th of the moments that matter: a file written, a flush, a rename."""

    def __init__(self, folder: Path, *, moment: int, random: Random) -> None:
        self.folder, self.left, self.random = folder, moment, random
        self.flushed: dict[int, int] = {}  # inode → bytes that are safe
        self.renames: list[tuple[Path, Path]] = []  # not yet safe

    def install(self) -> None:
        """Only in a child that is to die: it stays."""
        rename = Path.rename

        def fsync(descriptor: int) -> None:
            self._moment()
            found = os.fstat(descriptor)
            self.flushed[found.st_ino] = found.st_size
            self.renames = [pair for pair in self.renames if pair[1].parent.stat().st_ino != found.st_ino]

        def renamed(path: Path, target: Path) -> Path:
            self._moment()
            found = rename(path, target)
            self.renames.append((path, target))
            return found

        def saved(*args: object, **options: object) -> None:
            save_file(*args, **options)  # type: ignore[arg-type]
            self._moment()

        os.fsync, Path.rename, state.save_file = fsync, renamed, saved  # type: ignore[assignment, method-assign]
        self._rename = rename

    def _moment(self) -> None:
        self.left -= 1
        if self.left == 0:
            self._cut()
            os.kill(os.getpid(), signal.SIGKILL)

    def _cut(self) -> None:
        for source, target in reversed(self.renames):
            if self.random.random() < 0.5 and target.exists() and not source.exists():
                self._rename(target, source)
        for path in self.folder.rglob("*"):
            if path.is_file():
                found = path.stat()
                safe = self.flushed.get(found.st_ino, 0)
                if found.st_size > safe:
                    with path.open("r+b") as file:
                        file.seek(safe)
                        file.write(bytes(found.st_size - safe))
