"""What the shell completes arguments by: names of tasks and model folders. Files are completed by the shell itself.
`headway --install-completion` installs it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from headway.tasks import TASKS

RUNS = "runs"  # where `train` puts runs
MOST = 100  # folders to propose


def task_names(incomplete: str) -> list[tuple[str, str]]:
    """Tasks whose name begins so, with what they do."""
    return [(name, entry.summary) for name, entry in TASKS.items() if name.startswith(incomplete)]


def model_folders(incomplete: str) -> list[str]:
    """Model folders in the folder that is being written, and folders on the way to them; at the start also those in
    `runs`."""
    typed, start = os.path.split(incomplete)
    found = [str(Path(typed, name)) + ("" if is_model else os.sep) for name, is_model in _folders(typed, start)]
    if not typed:
        found += [str(Path(RUNS, name)) for name, is_model in _folders(RUNS, "") if is_model and _fits(name, start)]
    return list(dict.fromkeys(found))[:MOST]


def _fits(name: str, start: str) -> bool:
    return not start or f"{RUNS}/{name}".startswith(start)


def _folders(parent: str, start: str) -> Iterator[tuple[str, bool]]:
    """Folders in a folder whose name begins so, and whether they are models."""
    try:
        entries = sorted(os.scandir(parent or "."), key=lambda entry: entry.name)
    except OSError:  # no such folder yet
        return
    for entry in entries:
        hidden = entry.name.startswith(".") and not start.startswith(".")
        if entry.name.startswith(start) and not hidden and entry.is_dir():
            yield entry.name, os.path.isfile(os.path.join(entry.path, "config.json"))
