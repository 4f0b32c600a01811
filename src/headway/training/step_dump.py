"""Dump of a step with a non-finite loss or gradient, for `headway replay`: `training/autopsy-<step>`.

It contains the weights before the step, the micro-batch and the random states, in the format of a training state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.data.batch import Batch
from headway.engine.training.precision import autocast
from headway.errors import TrainingError
from headway.training import rng
from headway.training.nonfinite import NonFiniteReport, find_nonfinite, format_locations
from headway.training.protocols import LossFunction
from headway.training.state import UNREADABLE, load_state, verify, write_state
from headway.training.state_schema import StepDumpState, check_schema


@dataclass(frozen=True)
class StepDump:
    """Everything the forward and backward pass of a micro-batch depends on, except code and weights."""

    step: int
    batch: Batch
    precision: str
    factor: float  # multiplies the loss before the backward pass
    device: torch.device
    random_state: dict[str, Any]

    def find_nonfinite(self, model: nn.Module, loss: LossFunction) -> NonFiniteReport:
        def run() -> Tensor:
            with autocast(self.precision, self.device):
                return loss(model, self.batch.to(self.device)).total.float() * self.factor

        rng.restore(self.random_state)
        return find_nonfinite(model, run)

    def save(self, path: Path, model: nn.Module, first_nonfinite: str) -> None:
        batch = self.batch
        facts = {"step": self.step, "precision": self.precision, "factor": self.factor, "culprit": first_nonfinite}
        examples = {"inputs": batch.inputs, "targets": batch.targets, "count": batch.count, "where": batch.where}
        examples |= {} if batch.sequence_lengths is None else {"sequence_lengths": list(batch.sequence_lengths)}
        write_state(
            path, {"model": model.state_dict(), "batch": examples, "streams": self.random_state, "facts": facts}
        )


@dataclass(frozen=True)
class ReplayResult:
    step: int
    where: list[str]
    first_nonfinite: str  # in the run
    report_now: NonFiniteReport  # of the replay

    @property
    def reproduced(self) -> bool:
        return self.report_now.first == self.first_nonfinite

    def report(self, *, shown: int = 6) -> list[str]:
        """Lines of text: the batch, and the largest absolute values up to the first non-finite output."""
        names = [name for name, _ in self.report_now.max_abs]
        if self.first_nonfinite in names:
            end = names.index(self.first_nonfinite) + 1
            title, rows = f"up to {self.first_nonfinite}", self.report_now.max_abs[max(0, end - shown) : end]
        else:
            title, rows = "the largest", sorted(self.report_now.max_abs, key=lambda item: -item[1])[:shown]
        width = max((len(name) for name, _ in rows), default=0)
        return [
            f"step {self.step}; batch: {format_locations(self.where)}",
            f"largest absolute value of an output, {title}:",
            *(f"  {name:<{width}}  {value:.4g}" for name, value in rows),
            f"first not finite in the run: {self.first_nonfinite}",
            f"first not finite now:        {self.report_now.first or 'nothing'}",
        ]


def replay(path: Path, model: nn.Module, *, loss: LossFunction, device: torch.device) -> ReplayResult:
    """Run a dumped step again on a model of the same shape. The weights of that step are loaded into the model."""
    problem = verify(path)
    if problem is not None:
        raise TrainingError(f"{problem}; this step dump cannot be replayed")
    try:
        saved = load_state(path)
    except UNREADABLE as error:
        raise TrainingError(f"{path}: unreadable although its checksums match ({type(error).__name__})") from error
    check_schema(saved, StepDumpState, folder=path)
    facts, saved_batch = saved["facts"], dict(saved["batch"])
    lengths = saved_batch.pop("sequence_lengths", None)
    try:
        model.load_state_dict(saved["model"])
    except RuntimeError as error:
        raise TrainingError(f"{path}: belongs to another model: {error}") from error
    dump = StepDump(
        step=facts["step"],
        batch=Batch(**saved_batch, sequence_lengths=None if lengths is None else tuple(lengths)),
        precision=facts["precision"],
        factor=facts["factor"],
        device=device,
        random_state=saved["streams"],
    )
    report = dump.find_nonfinite(model.to(device).train(), loss)
    return ReplayResult(dump.step, dump.batch.where, facts["culprit"], report)
