"""Interfaces of the training loop: batch source, loss function, callbacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from headway.data.batch import Batch, Loss
from headway.training.schedule import Extension


class Source(Protocol):
    """A seekable sequence of batches.

    `epoch` returns the example indices of each effective batch; it depends on the epoch number alone, not on the number
    of ranks. `load` collates some of them; its randomness depends on seed, epoch and indices only. `fingerprint` is
    text that changes with the data, preferably one line per file.
    """

    fingerprint: str

    def epoch(self, number: int) -> Sequence[np.ndarray]: ...

    def load(self, indices: np.ndarray, epoch: int) -> Batch: ...


class LossFunction(Protocol):
    def __call__(self, model: nn.Module, batch: Batch) -> Loss: ...


@dataclass
class Status:
    """The progress of a run, passed to callbacks. Every field but the model is saved."""

    model: nn.Module
    step: int = 0
    epoch: int = 0
    position: int = 0  # effective batches of this epoch already trained on
    steps: int = 0  # planned; an estimate if the length is in minutes
    elapsed: float = 0.0
    factor: float = 0.0  # of the schedule at the last step
    first_loss: float | None = None  # of the first step, before any update
    extended_at: int = 0  # the step at which the length of the run was changed last; 0 = never
    extended_factor: float = 0.0  # of the schedule at the last step before that
    evaluated: int = -1  # the step of the last evaluation
    unimproved: int = 0  # evaluations since the best
    best: float | None = None
    best_loss: float | None = None  # of the best weights; breaks ties of the score
    best_step: int = -1
    best_sha256: str = ""

    @property
    def extension(self) -> Extension | None:
        return Extension(self.extended_at, self.extended_factor) if self.extended_at else None

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "model"}


class Callback:
    """Base class of callbacks; override the methods of interest. Only rank 0 calls them."""

    def on_start(self, status: Status) -> None: ...

    def on_step(self, status: Status) -> None: ...

    def on_log(self, status: Status, metrics: dict[str, float]) -> None: ...

    def on_evaluate(self, status: Status, scores: dict[str, float]) -> None: ...

    def on_save(self, status: Status, path: Path) -> None: ...

    def on_note(self, status: Status, message: str) -> None: ...

    def on_warning(self, status: Status, message: str) -> None: ...

    def on_end(self, status: Status) -> None: ...
