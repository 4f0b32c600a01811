"""What a run's folder contains besides its model, and lists of paths: all that commands on a finished model need."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from headway.checkpoints import read_json
from headway.checkpoints.saved import ADAPTER
from headway.errors import ConfigError
from headway.files import is_present, remove, require_inside

TRAINING = "training"  # in a run's folder: states, log, prepared examples
PLAN = "plan.json"  # in a run's training/
INITIAL = "initial.json"  # in a run's training/: checksums of the weights before its first step
BASELINES = "baselines.json"  # in a run's training/: what cheap models reach on the same held-out examples
SCORES = "scores.json"  # in a run's training/, once it has come to its end
FAILED = "error.json"  # in a run's training/: the error that ended it
EXAMPLES = "examples"  # in a run's training/: the store of prepared examples
HELD_OUT = "held-out"  # as EXAMPLES, of the held-out rows, where a reference model is needed
BEST = "best.safetensors"  # in a run's training/: the best weights so far

Paths = str | Path | Sequence[str | Path]


def run_file(folder: str | Path, name: str) -> Path:
    """A file of a run's `training` folder."""
    return Path(folder) / TRAINING / name


def read_run_json(folder: str | Path, name: str) -> dict[str, Any] | None:
    """A JSON file of a run's `training` folder; None if there is none."""
    path = run_file(folder, name)
    return read_json(path, inside=folder) if is_present(path) else None


def listed(paths: Paths) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def entries(folder: Path) -> set[str] | None:
    """Names in a folder; None if there is none."""
    return {path.name for path in folder.iterdir()} if folder.is_dir() else None


def remove_new(folder: Path, before: set[str] | None) -> None:
    """Removes what was not in a folder before, and the folder if it was not there."""
    with suppress(OSError):
        for name in (entries(folder) or set()) - (before or set()):
            if not (name == TRAINING and (folder / name).is_dir()):
                remove(folder / name)
            elif not entries(folder / name):
                (folder / name).rmdir()
        if before is None:
            folder.rmdir()


def require_writable(folder: Path) -> None:
    """ConfigError if the folder could not be written; nothing is left behind."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ConfigError(f"{folder}: cannot be written, because {existing} is a file; choose another output folder")
    try:
        with TemporaryDirectory(prefix=".headway-", dir=existing):
            pass
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written ({error.strerror}); choose another output folder") from error


def require_own_folders(folder: Path) -> None:
    """ConfigError if a folder that a run writes to is a link out of the run folder."""
    try:
        os.fspath(folder).encode()
    except UnicodeEncodeError:
        raise ConfigError(f"{folder}: the name of the run folder is not UTF-8; choose another with --out") from None
    for name in (TRAINING, ADAPTER, f"{TRAINING}/tensorboard"):
        try:
            require_inside(folder / name, folder)
        except OSError as error:
            raise ConfigError(
                f"{folder / name}: {error.strerror}. Training writes inside the run folder only: remove the link, or "
                "put the whole run folder there"
            ) from error


def unfinished(folder: str | Path) -> bool:
    """Whether this is a run that has not come to its end, so that its model is the one it began with."""
    return is_present(run_file(folder, PLAN)) and not is_present(run_file(folder, SCORES))
