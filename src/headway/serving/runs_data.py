"""Data files that were uploaded for training: a folder `uploads` beside the runs, with bounds on its files' number and
size. A request names a file of that folder; it never names a path."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headway.checkpoints import save_bytes
from headway.errors import DiskError, closest
from headway.files import remove
from headway.locks import LockedError, lock
from headway.serving.api_errors import ApiError, without_folders

UPLOADS = "uploads"
STUDIO = ".studio"  # beside the runs: records of processes, and the lock
LOCK_SECONDS = 30.0
MOST_FILES = 200
MOST_BYTES = 2**30  # of all files together
MOST_NAME = 100
MOST_NAME_BYTES = 240  # a file system takes 255
UNSAFE = re.compile(r"[^\w.+-]+")


def safe_name(given: str) -> str:
    """A file name of letters, digits and . _ + - that begins with none of the last three; other characters become _."""
    name = UNSAFE.sub("_", given.replace("\\", "/").rpartition("/")[2]).lstrip("._+-")
    if len(name.encode()) > MOST_NAME_BYTES:
        raise ApiError(
            400, f"the file name {name!r:.60} has more than {MOST_NAME_BYTES} bytes; shorten it", param="name"
        )
    name = name[-MOST_NAME:].lstrip("._+-")
    if not name or name.rpartition(".")[0] == "":
        raise ApiError(
            400, f"the file name {given!r:.100} needs a name and an ending, such as reviews.csv", param="name"
        )
    return name


@contextmanager
def changing(runs: Path) -> Iterator[None]:
    """While runs or uploads are changed: one request at a time, of all threads and servers, so that what was checked
    is still true."""
    try:
        with lock(runs / STUDIO / "lock", wait=LOCK_SECONDS):
            yield
    except LockedError as error:
        raise ApiError(503, "another request changes the runs; try again", headers={"Retry-After": "5"}) from error


class Uploads:
    def __init__(self, runs: Path) -> None:
        self.runs, self.folder = runs, runs / UPLOADS

    def all(self) -> dict[str, Path]:
        """Files and folders by name; links are left out."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return {}
        with os.scandir(self.folder) as entries:
            found = [e for e in entries if not e.is_symlink() and not e.name.startswith(".") and e.name.isprintable()]
        return {entry.name: Path(entry.path) for entry in sorted(found, key=lambda entry: entry.name)}

    def facts(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "folder": path.is_dir(), "bytes": 0 if path.is_dir() else path.stat().st_size}
            for name, path in self.all().items()
        ]

    def find(self, name: str, *, param: str) -> Path:
        found = self.all()
        if name not in found:
            close = closest(name, found)
            hint = f"; did you mean {close[0]!r}?" if close else ": upload it first"
            raise ApiError(404, f"there is no data file {name!r:.100}{hint}", param=param, code="data_not_found")
        return found[name]

    def save(self, given: str, data: bytes) -> str:
        """Under a safe name that no other file has; returns it."""
        if not data:
            raise ApiError(400, "the file is empty", param="body")
        name = safe_name(given)
        with changing(self.runs):
            return self._save(name, data)

    def _save(self, name: str, data: bytes) -> str:
        present = self.all()
        if len(present) >= MOST_FILES:
            raise ApiError(413, f"{MOST_FILES} files are uploaded, which is the limit: remove some")
        if sum(each["bytes"] for each in self.facts()) + len(data) > MOST_BYTES:
            raise ApiError(413, f"the uploaded files would have more than {MOST_BYTES:,} bytes: remove some")
        stem, _, ending = name.rpartition(".")
        number = 1
        while name in present:
            number += 1
            name = f"{stem}-{number}.{ending}"
        if self.folder.is_symlink():
            raise ApiError(409, f"{UPLOADS} is a link, which is not written through")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            save_bytes(self.folder / name, data, new=True)
        except DiskError as error:
            raise ApiError(507, without_folders(str(error))) from error
        return name

    def remove(self, name: str) -> None:
        path = self.find(name, param="name")
        if path.is_dir():
            raise ApiError(409, f"{name!r:.100} is a folder, which is removed by hand", param="name")
        remove(path)
