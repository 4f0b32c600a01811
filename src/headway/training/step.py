"""One effective batch → gradients, exact whatever the number of ranks and micro-batches.

Every micro-batch is collated first, so each loss is divided by the number of predictions of the whole effective batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from headway.checkpoints import read_json, save_json
from headway.data.batch import Batch
from headway.errors import TrainingError
from headway.memory import give_back_freed_memory
from headway.training import rng
from headway.training.distributed import Replica, World
from headway.training.nonfinite import is_out_of_memory, lines
from headway.training.protocols import LossFunction, Source
from headway.training.step_dump import Case, autocast

SPLIT = "out-of-memory.json"  # in a run's training/: the number of micro-batches to go on with


@dataclass
class LossScale:
    """fp16 gradients vanish unless the loss is scaled up (Micikevicius et al. 2018); halved whenever that overflows."""

    value: float = 2.0**16
    finite: int = 0
    patience: int = 2000

    def update(self, finite: bool) -> None:
        self.finite += 1
        if not finite:
            self.value, self.finite = self.value / 2, 0
        elif self.finite == self.patience:
            self.value, self.finite = self.value * 2, 0


@dataclass
class Gradients:
    """What one effective batch left in the parameters' `.grad`, and its sums, still on the device."""

    total: Tensor
    parts: dict[str, Tensor]
    count: int
    rows: int
    norm: Tensor
    where: list[str]  # the lines this rank's share came from
    size: float = 0.0  # the norm, read from the device
    ready: bool = True  # False: fp16 overflowed or the batch is left out, nothing to apply


@dataclass
class Stepper:
    replica: Replica
    source: Source
    loss: LossFunction
    world: World
    device: torch.device
    precision: str
    accumulate: int
    training: Path
    warn: Callable[[str], None]
    scale: LossScale = field(default_factory=LossScale)

    @property
    def factor(self) -> float:
        """What the loss is multiplied by before the backward pass, and the gradients divided by after it."""
        return self.scale.value if self.precision == "fp16" else 1.0

    def autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.precision, self.device)

    def gradients(self, indices: np.ndarray, *, epoch: int, step: int) -> Gradients:
        """Fill `.grad` for one effective batch; too large a micro-batch is halved and the step begun again."""
        streams = rng.capture()
        while True:
            batches, count, rows = self._collate(indices, epoch)
            try:
                found = self._backward(batches, count=count, rows=rows)
                break
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._halve(len(indices), error)
            self.replica.learner.zero_grad(set_to_none=True)
            give_back_freed_memory()
            rng.restore(streams)
        # Read at every step, at once: an update must never be made from a value that is not finite. The gradient is all
        # ranks' already; the loss is summed, so that none goes on where another stops.
        own, found.size = torch.stack([found.total, found.norm]).tolist()
        (total,) = self.world.sum(own)
        finite = isfinite(total) and isfinite(found.size)
        if not finite and (not isfinite(total) or self.factor <= 1):
            with self.replica.kept() as model:
                case = Case(step, batches[0], self.precision, self._weight(count), self.device, streams)
                raise self._blame(model, batches, case, lost=not isfinite(own))
        self.scale.update(finite)
        found.ready = finite
        return found

    def _collate(self, indices: np.ndarray, epoch: int) -> tuple[list[Batch], int, int]:
        share = indices[self.world.rank :: self.world.size]
        pieces = [piece for piece in np.array_split(share, self.accumulate) if len(piece)]
        batches = [self.source.load(piece, epoch) for piece in pieces]
        count, rows = self.world.sum(sum(batch.count for batch in batches), sum(batch.rows for batch in batches))
        if count == 0:
            where = [place for batch in batches for place in batch.where]
            raise TrainingError(f"a batch has nothing to predict: {lines(where)}")
        # Every rank meets the others in every pass: one with fewer examples takes part with weight 0.
        while len(batches) < min(self.accumulate, -(-len(indices) // self.world.size)):
            spare = self.source.load(indices[:1], epoch)
            batches.append(Batch(inputs=spare.inputs, targets=spare.targets, count=0, where=[]))
        return batches, int(count), int(rows)

    def _backward(self, batches: list[Batch], *, count: int, rows: int) -> Gradients:
        total = torch.zeros((), device=self.device)
        parts: dict[str, Tensor] = {}
        weight = self._weight(count)
        for number, batch in enumerate(batches, start=1):
            with nullcontext() if number == len(batches) else self.replica.unsynced():
                with self.autocast():
                    found = self.loss(self.replica.parallel, batch.to(self.device))
                share = weight if batch.count else 0.0
                (found.total.float() * share).backward()
            if batch.count:
                total += found.total.detach()
                for name, part in found.parts.items():
                    parts[name] = part.detach() + parts.get(name, 0.0)
        grads = [parameter.grad for parameter in self.replica.learner.parameters() if parameter.grad is not None]
        if self.factor != 1:
            torch._foreach_div_(grads, self.factor)
        norm = self.replica.number(get_total_norm(grads, foreach=True))
        where = [place for batch in batches for place in batch.where]
        return Gradients(total=total, parts=parts, count=count, rows=rows, norm=norm, where=where)

    def _weight(self, count: int) -> float:
        """What a loss is multiplied by: it is of `count` predictions, and the average that ranks make is undone."""
        return self.factor * self.world.size / count

    def _halve(self, rows: int, error: BaseException) -> None:
        if self.accumulate * self.world.size >= rows:
            raise TrainingError(
                f"out of memory with a single example; use a shorter length or a smaller model ({error})"
            ) from error
        if self.world.size > 1:  # the others are in the middle of the step and wait: all begin anew, and find the note
            save_json(self.training / SPLIT, {"accumulate": self.accumulate * 2})
            raise TrainingError(
                f"out of memory on one of {self.world.size} ranks; resumed (torchrun --max-restarts does it by itself) "
                f"the run goes on with {self.accumulate * 2} micro-batches a step (same result)"
            ) from error
        self.accumulate *= 2
        self.warn(f"out of memory: each batch is now computed in {self.accumulate} micro-batches (same result)")

    def take_up_split(self) -> list[str]:
        """Halve the micro-batches as ranks before these found they must; what the user should know about it."""
        found = self.world.share(self.world.first(lambda: _noted(self.training / SPLIT)))
        if found <= self.accumulate:
            return []
        self.accumulate = found
        return [f"out of memory on a rank before: each batch is now computed in {found} micro-batches (same result)"]

    def _blame(self, model: nn.Module, batches: list[Batch], case: Case, *, lost: bool) -> TrainingError:
        """Find the micro-batch and the module at fault; whichever rank has them keeps them for `headway replay`, and
        every rank tells of them. `lost`: this rank's loss is not finite."""
        for batch in batches:
            case = replace(case, batch=batch)
            culprit = case.examine(model, self.loss).culprit
            if culprit is not None:
                break
            case = replace(case, streams=rng.capture())
        innocent = self.world.gather((not lost, culprit is None))  # a loss weighs more than a gradient
        at_fault = innocent.index(min(innocent))
        told = self._keep(case, model, culprit or "no module when run again") if self.world.rank == at_fault else ""
        return TrainingError(self.world.gather(told)[at_fault])

    def _keep(self, case: Case, model: nn.Module, culprit: str) -> str:
        path = self.training / f"autopsy-{case.step}"
        try:
            case.save(path, model, culprit)
            kept = f"look at it again with `headway replay {path}`"
        except TrainingError as error:
            kept = f"the batch could not be kept: {error}"
        return (
            f"step {case.step}: the loss or its gradient is not finite; first seen at: {culprit}; "
            f"batch: {lines(case.batch.where)}. The weights were not updated: lower lr, or look at these lines; {kept}"
        )


def _noted(path: Path) -> int:
    if not path.exists():
        return 0
    found = read_json(path).get("accumulate")
    if type(found) is not int or found < 1:
        raise TrainingError(f"{path}: accumulate is {found!r}, not a number of micro-batches; remove the file")
    return found
