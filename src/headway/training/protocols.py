"""What the loop is given – where batches come from, what a loss is, who listens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from headway.data.batch import Batch, Loss


class Source(Protocol):
    """A seekable order of examples.

    `epoch` gives the example indices of each effective batch; it depends on the epoch alone, never on how many
    processes share the work. `load` collates some of them; its randomness comes from seed, epoch and indices.
    `fingerprint` is text that changes when the data does, best one line per file.
    """

    fingerprint: str

    def epoch(self, number: int) -> Sequence[np.ndarray]: ...

    def load(self, indices: np.ndarray, epoch: int) -> Batch: ...


class LossFunction(Protocol):
    def __call__(self, model: nn.Module, batch: Batch) -> Loss: ...


@dataclass
class Status:
    """Where a run stands: what callbacks see and, but for the model, what is saved."""

    model: nn.Module
    step: int = 0
    epoch: int = 0
    position: int = 0  # effective batches of this epoch already used
    steps: int = 0  # planned; an estimate while the length is given in minutes
    elapsed: float = 0.0
    factor: float = 0.0  # the schedule's, at the last step
    evaluated: int = -1  # the step of the last evaluation
    unimproved: int = 0  # evaluations since the best
    best: float | None = None
    best_step: int = -1
    best_sha256: str = ""

    def numbers(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "model"}


class Callback:
    """Someone who listens to a run; override what is of interest. Only the first rank calls."""

    def on_start(self, status: Status) -> None: ...

    def on_step(self, status: Status) -> None: ...

    def on_log(self, status: Status, metrics: dict[str, float]) -> None: ...

    def on_evaluate(self, status: Status, scores: dict[str, float]) -> None: ...

    def on_save(self, status: Status, path: Path) -> None: ...

    def on_warning(self, status: Status, message: str) -> None: ...

    def on_end(self, status: Status) -> None: ...
