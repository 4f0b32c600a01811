"""What a run's folder contains besides its model, and lists of paths: all that commands on a finished model need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from headway.errors import ConfigError

PLAN = "plan.json"  # in a run's training/
INITIAL = "initial.json"  # in a run's training/: checksums of the weights before its first step
SCORES = "scores.json"  # in a run's training/, once it has come to its end

Paths = str | Path | Sequence[str | Path]


def listed(paths: Paths) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


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


def unfinished(folder: str | Path) -> bool:
    """Whether this is a run that has not come to its end, so that its model is the one it began with."""
    training = Path(folder) / "training"
    return (training / PLAN).exists() and not (training / SCORES).exists()
