"""A small disk (tmpfs) that can be filled: with bytes, or with files until no inode is free."""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Lack = Literal["bytes", "inodes"]
LACKS: tuple[Lack, ...] = ("bytes", "inodes")


class NoMountError(Exception):
    """Mounting a small disk is not allowed here."""


@contextmanager
def small_disk(folder: Path, *, kilobytes: int, inodes: int) -> Iterator[SmallDisk]:
    folder.mkdir(exist_ok=True)
    options = f"size={kilobytes}k,nr_inodes={inodes}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        raise NoMountError(f"mounting a small disk is not allowed ({mounted.stderr.strip()})")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fillers: list[Path] = []

    def fill(self, lack: Lack) -> None:
        try:
            if lack == "bytes":
                self.fillers.append(self.folder / "filler")
                with (self.folder / "filler").open("ab", buffering=0) as file:
                    while True:
                        file.write(bytes(4096))
            while True:
                filler = self.folder / f"filler-{len(self.fillers)}"
                filler.touch(exist_ok=False)
                self.fillers.append(filler)
        except OSError as error:
            assert error.errno == errno.ENOSPC, error

    def free(self) -> None:
        for filler in self.fillers:
            filler.unlink(missing_ok=True)
        self.fillers.clear()
