"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGINT, SIGTERM

from headway.training.log import Entry


@dataclass(frozen=True)
class FitResult:
    steps: int
    epochs: int
    best: float | None
    best_step: int | None  # of the weights the run ends with, if they were chosen by a score
    history: list[Entry]
    stopped_by: str  # steps, epochs, minutes, patience, SIGTERM or SIGINT
    seconds: float

    @property
    def exit_code(self) -> int:
        """128 + the signal number if a signal ended the run, otherwise 0."""
        return {"SIGTERM": 128 + SIGTERM, "SIGINT": 128 + SIGINT}.get(self.stopped_by, 0)
