"""What a step that was not finite leaves behind, so that it can be looked at again: `training/autopsy-<step>`.

It holds the weights before the step, the batch and the random streams, in the form of a state: safetensors and JSON,
with checksums.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from headway.data.batch import Batch
from headway.errors import TrainingError
from headway.training import rng
from headway.training.nonfinite import Finding, examine, lines
from headway.training.protocols import LossFunction
from headway.training.state import UNREADABLE, load_state, verify, write_folder
from headway.training.state_schema import AUTOPSY, require

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Case:
    """Everything one forward and backward pass of a micro-batch depends on, besides the model's code and weights."""

    step: int
    batch: Batch
    precision: str
    factor: float  # what the loss is multiplied by before the backward pass
    device: torch.device
    streams: dict[str, Any]

    def examine(self, model: nn.Module, loss: LossFunction) -> Finding:
        def run() -> Tensor:
            with autocast(self.precision, self.device):
                return loss(model, self.batch.to(self.device)).total.float() * self.factor

        rng.restore(self.streams)
        return examine(model, run)

    def save(self, path: Path, model: nn.Module, culprit: str) -> None:
        batch = self.batch
        facts = {"step": self.step, "precision": self.precision, "factor": self.factor, "culprit": culprit}
        examples = {"inputs": batch.inputs, "targets": batch.targets, "count": batch.count, "where": batch.where}
        write_folder(path, {"model": model.state_dict(), "batch": examples, "streams": self.streams, "facts": facts})


@dataclass(frozen=True)
class Replayed:
    step: int
    where: list[str]
    culprit: str  # as it was found in the run
    finding: Finding  # as it is found now

    @property
    def reproduced(self) -> bool:
        return self.finding.culprit == self.culprit

    def report(self, *, shown: int = 6) -> list[str]:
        """For people: the batch, and the way of the numbers to where they left the finite."""
        names = [name for name, _ in self.finding.trail]
        if self.culprit in names:
            end = names.index(self.culprit) + 1
            title, trail = f"on the way to {self.culprit}", self.finding.trail[max(0, end - shown) : end]
        else:
            title, trail = "where it is largest", sorted(self.finding.trail, key=lambda item: -item[1])[:shown]
        width = max((len(name) for name, _ in trail), default=0)
        return [
            f"step {self.step}; batch: {lines(self.where)}",
            f"largest absolute value of an output, {title}:",
            *(f"  {name:<{width}}  {value:.4g}" for name, value in trail),
            f"first not finite in the run: {self.culprit}",
            f"first not finite now:        {self.finding.culprit or 'nothing'}",
        ]


def replay(path: Path, model: nn.Module, *, loss: LossFunction, device: torch.device) -> Replayed:
    """Run the step of an autopsy again, on a model of the run's shape, which is left with the weights of that step."""
    problem = verify(path)
    if problem is not None:
        raise TrainingError(f"{problem}; this autopsy cannot be replayed")
    try:
        kept = load_state(path)
    except UNREADABLE as error:
        raise TrainingError(f"{path}: unreadable, though its checksums agree ({type(error).__name__})") from error
    require(kept, AUTOPSY, folder=path)
    facts = kept["facts"]
    try:
        model.load_state_dict(kept["model"])
    except RuntimeError as error:
        raise TrainingError(f"{path}: is of another model: {error}") from error
    case = Case(
        step=facts["step"],
        batch=Batch(**kept["batch"]),
        precision=facts["precision"],
        factor=facts["factor"],
        device=device,
        streams=kept["streams"],
    )
    finding = case.examine(model.to(device).train(), loss)
    return Replayed(case.step, case.batch.where, facts["culprit"], finding)


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    return nullcontext() if precision == "fp32" else torch.autocast(device.type, dtype=DTYPES[precision])
