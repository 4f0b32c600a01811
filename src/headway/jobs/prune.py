"""Files that only a run that goes on needs: states, the best weights so far, prepared examples, and what interrupted
saves left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from headway.files import PARTIAL, is_present, remove, remove_leftovers
from headway.jobs.run_folder import ADAPTER, BEST, EXAMPLES, HELD_OUT, SCORES, TRAINING, run_file
from headway.jobs.runs import list_runs, run_state

STATE = re.compile(r"state-\d+(\.damaged)?")


@dataclass(frozen=True)
class Prunable:
    """A file or folder of a run that can be removed."""

    path: Path
    bytes: int


def drop_states(folder: Path, *, kept: bool) -> None:
    """Of a run that has just finished: what would be needed to extend it, unless that is `kept`."""
    if not kept and is_present(run_file(folder, SCORES)):
        for path in resume_files(folder / TRAINING):
            remove(path)


def prunable(folder: Path) -> list[Prunable]:
    """Of every run in the folder or below it that no process trains now."""
    found = [path for run in list_runs(folder) if run.state != "running" for path in removable(run.folder)]
    return [Prunable(path, size_of(path)) for path in found]


def prune(found: Iterable[Prunable]) -> int:
    """Returns the bytes that were removed: not those of a file that some process is writing."""
    found = list(found)
    for each in found:
        if each.path.name.endswith(PARTIAL):
            remove_leftovers(each.path.parent)
        else:
            remove(each.path)
    return sum(each.bytes for each in found if not is_present(each.path))


def removable(run: Path) -> list[Path]:
    """What interrupted saves left behind; of a finished run also what only extending it needs."""
    partial = [path for path in children(run, TRAINING, ADAPTER) if path.name.endswith(PARTIAL)]
    return [*partial, *(resume_files(run / TRAINING) if run_state(run) == "finished" else [])]


def resume_files(training: Path) -> list[Path]:
    return [
        path for path in children(training) if path.name in (BEST, EXAMPLES, HELD_OUT) or STATE.fullmatch(path.name)
    ]


def children(folder: Path, *below: str) -> Iterator[Path]:
    """What is in a folder and in some folders of it; nothing behind a link."""
    for place in (folder, *(folder / name for name in below)):
        if place.is_dir() and not place.is_symlink():
            yield from sorted(place.iterdir())


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder; links are not followed."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(os.lstat(os.path.join(at, name)).st_size for at, _, names in os.walk(path) for name in names)
