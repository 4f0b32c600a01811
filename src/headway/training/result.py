"""What a run of the loop comes to."""

from __future__ import annotations

from dataclasses import dataclass
from signal import SIGINT, SIGTERM

from headway.training.log import Entry


@dataclass(frozen=True)
class FitResult:
    steps: int
    epochs: int
    best: float | None
    history: list[Entry]
    stopped_by: str  # steps, epochs, minutes, patience, SIGTERM or SIGINT
    seconds: float

    @property
    def exit_code(self) -> int:
        """What a process that was asked to stop ends with by custom; 0 for a run that ended by itself."""
        return {"SIGTERM": 128 + SIGTERM, "SIGINT": 128 + SIGINT}.get(self.stopped_by, 0)
