"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGINT, SIGTERM
from statistics import median

from headway.training.folder import Entry

LAST_ENTRIES = 3  # of the log, for the loss at the end


@dataclass(frozen=True)
class FitResult:
    steps: int
    epochs: int
    best: float | None
    best_step: int | None  # of the weights the run ends with, if they were chosen by a score
    history: list[Entry]
    stopped_by: str  # steps, epochs, minutes, patience, SIGTERM or SIGINT
    seconds: float
    first_loss: float | None = None  # of the first step, before any update; None: the state did not have it

    @property
    def last_loss(self) -> float | None:
        """The median of the last logged losses."""
        logged = [entry["loss"] for entry in self.history if entry.get("loss") is not None]
        return median(logged[-LAST_ENTRIES:]) if logged else None

    @property
    def exit_code(self) -> int:
        """128 + the signal number if a signal ended the run, otherwise 0."""
        return {"SIGTERM": 128 + SIGTERM, "SIGINT": 128 + SIGINT}.get(self.stopped_by, 0)
