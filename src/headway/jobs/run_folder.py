"""What a run's folder contains besides its model, and lists of paths: all that commands on a finished model need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

PLAN = "plan.json"  # in a run's training/
SCORES = "scores.json"  # in a run's training/, once it has come to its end

Paths = str | Path | Sequence[str | Path]


def listed(paths: Paths) -> list[Path]:
    return [Path(paths)] if isinstance(paths, str | Path) else [Path(path) for path in paths]


def unfinished(folder: str | Path) -> bool:
    """Whether this is a run that has not come to its end, so that its model is the one it began with."""
    training = Path(folder) / "training"
    return (training / PLAN).exists() and not (training / SCORES).exists()
