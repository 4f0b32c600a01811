"""Gradients of one effective batch, independent of the number of ranks and micro-batches.

All micro-batches are collated first, so that each loss is divided by the number of predictions of the effective batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, TypedDict

import numpy as np
import torch
from torch import Tensor, nn

from headway.checkpoints import read_json, save_json
from headway.data.batch import Batch
from headway.distributed import World
from headway.engine.training.precision import autocast
from headway.errors import CheckpointError, ConfigError, DiskError, TrainingError
from headway.files import is_present
from headway.memory import return_freed_memory
from headway.training import rng
from headway.training.nonfinite import format_locations, is_out_of_memory
from headway.training.protocols import LossFunction, Source
from headway.training.read_ahead import ReadAhead
from headway.training.replica import Replica
from headway.training.step_dump import StepDump
from headway.validation import between, from_dict

SPLIT_FILE = "out-of-memory.json"  # in training/: the number of micro-batches to use after a restart


class SplitFile(TypedDict):
    accumulate: Annotated[int, between(1)]


@dataclass
class LossScale:
    """fp16 loss scaling (Micikevicius et al. 2018): halved on overflow, doubled after `patience` finite steps."""

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
    """Loss sums and gradient norm of one effective batch, on the device; gradients are in `.grad`."""

    total: Tensor
    parts: dict[str, Tensor]
    count: int
    rows: int
    norm: Tensor
    where: list[str]  # source lines of this rank's examples
    norm_value: float = 0.0  # the norm, read from the device
    waited: float = 0.0  # seconds in which the batch was read and collated
    mean_loss: float = 0.0  # of all ranks, read from the device
    usable: bool = True  # False: skip the update (fp16 overflow or a gradient spike)


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

    def __post_init__(self) -> None:
        self.reader = ReadAhead(self.source)

    @property
    def factor(self) -> float:
        """The loss scale: multiplies the loss, divides the gradients."""
        return self.scale.value if self.precision == "fp16" else 1.0

    def autocast(self) -> AbstractContextManager[Any]:
        return autocast(self.precision, self.device)

    def gradients(self, indices: np.ndarray, *, epoch: int, step: int, upcoming: np.ndarray | None = None) -> Gradients:
        """Compute `.grad` for one effective batch. When out of memory, halve the micro-batches and repeat the step.
        `upcoming`: the batch of the next step, if it is of the same epoch."""
        random_state = rng.capture()
        start, waited = perf_counter(), 0.0
        while True:
            began = perf_counter()
            batches, count, rows = self.collate(indices, epoch)
            waited += perf_counter() - began
            if upcoming is not None:
                self.reader.start(self._pieces(upcoming), epoch)
            try:
                gradients = self.forward_backward(batches, count=count, rows=rows)
                break
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                self._split_further(len(indices), error)
            self.replica.trained.zero_grad(set_to_none=True)
            return_freed_memory()
            rng.restore(random_state)
        # The only read from the device in a step: an update with a non-finite value must never be made. The norm is the
        # same on all ranks; the loss is summed over them, so that all stop at the same step.
        own, gradients.norm_value = torch.stack([gradients.total, gradients.norm]).tolist()
        (total,) = self.world.all_reduce(own)
        gradients.mean_loss = total / count
        finite = isfinite(total) and isfinite(gradients.norm_value)
        if not finite and (not isfinite(total) or self.factor <= 1):
            with self.replica.full_model() as model:
                dump = StepDump(step, batches[0], self.precision, self._weight(count), self.device, random_state)
                raise self._nonfinite_error(model, batches, dump, loss_is_finite=isfinite(own))
        self.scale.update(finite)
        gradients.usable, gradients.waited = finite, waited
        self.reader.measure(step=perf_counter() - start)
        return gradients

    def collate(self, indices: np.ndarray, epoch: int) -> tuple[list[Batch], int, int]:
        """This rank's micro-batches of an effective batch, and the number of predictions and rows of all ranks."""
        batches = [self.reader.load(piece, epoch) for piece in self._pieces(indices)]
        count, rows = self.world.all_reduce(sum(batch.count for batch in batches), sum(batch.rows for batch in batches))
        if count == 0:
            where = [place for batch in batches for place in batch.where]
            raise TrainingError(f"a batch has nothing to predict: {format_locations(where)}")
        # Every rank runs the same number of passes, since backward synchronises: missing ones have weight 0.
        while len(batches) < min(self.accumulate, -(-len(indices) // self.world.size)):
            spare = self.source.load(indices[:1], epoch)
            batches.append(replace(spare, count=0, where=[]))
        return batches, int(count), int(rows)

    def _pieces(self, indices: np.ndarray) -> list[np.ndarray]:
        """The indices of this rank's micro-batches."""
        share = indices[self.world.rank :: self.world.size]
        return [piece for piece in np.array_split(share, self.accumulate) if len(piece)]

    def forward_backward(self, batches: list[Batch], *, count: int, rows: int) -> Gradients:
        """Forward and backward passes of the micro-batches. Reads nothing back from the device."""
        total = torch.zeros((), device=self.device)
        parts: dict[str, Tensor] = {}
        weight = self._weight(count)
        for number, batch in enumerate(batches, start=1):
            with nullcontext() if number == len(batches) else self.replica.no_sync():
                with self.autocast():
                    loss = self.loss(self.replica.parallel, batch.to(self.device))
                (loss.total.float() * (weight if batch.count else 0.0)).backward()
            if batch.count:
                total += loss.total.detach()
                for name, part in loss.parts.items():
                    parts[name] = part.detach() + parts.get(name, 0.0)
        grads = gradients_of(self.replica.trained)
        if self.factor != 1:
            torch._foreach_div_(grads, self.factor)
        norm = self.replica.full_tensor(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(grads))))
        where = [place for batch in batches for place in batch.where]
        return Gradients(total=total, parts=parts, count=count, rows=rows, norm=norm, where=where)

    def _weight(self, count: int) -> float:
        """The factor of a summed loss: 1 / count, times the loss scale, times the ranks over which DDP averages."""
        return self.factor * self.world.size / count

    def _split_further(self, rows: int, error: BaseException) -> None:
        if self.accumulate * self.world.size >= rows:
            raise TrainingError(
                f"out of memory with a single example; use a shorter length or a smaller model ({error})"
            ) from error
        if self.world.size > 1:  # the other ranks wait in the step: all must restart and read the file
            save_json(self.training / SPLIT_FILE, {"accumulate": self.accumulate * 2})
            raise TrainingError(
                f"out of memory on one of {self.world.size} ranks; resume it (torchrun --max-restarts does so) "
                f"and it continues with {self.accumulate * 2} micro-batches per step (same result)"
            ) from error
        self.accumulate *= 2
        self.warn(f"out of memory: each batch is now computed in {self.accumulate} micro-batches (same result)")

    def load_saved_split(self) -> list[str]:
        """Use the number of micro-batches saved by `_split_further` before a restart. Returns warnings for the user."""
        saved = self.world.broadcast(self.world.run_on_main(lambda: _read_split(self.training / SPLIT_FILE)))
        if saved <= self.accumulate:
            return []
        self.accumulate = saved
        return [f"a rank ran out of memory before: each batch is now computed in {saved} micro-batches (same result)"]

    def _nonfinite_error(
        self, model: nn.Module, batches: list[Batch], dump: StepDump, *, loss_is_finite: bool
    ) -> TrainingError:
        """Find the micro-batch and module where the non-finite value first appears. The rank that has it writes the
        dump for `headway replay`; every rank gets the same error. `loss_is_finite` refers to this rank's loss."""
        for batch in batches:
            dump = replace(dump, batch=batch)
            first = dump.find_nonfinite(model, self.loss).first
            if first is not None:
                break
            dump = replace(dump, random_state=rng.capture())
        finite = self.world.all_gather((loss_is_finite, first is None))  # a loss comes before a gradient
        source = finite.index(min(finite))
        message = self._save_dump(dump, model, first or "no module when run again") if self.world.rank == source else ""
        return TrainingError(self.world.all_gather(message)[source])

    def _save_dump(self, dump: StepDump, model: nn.Module, first_nonfinite: str) -> str:
        path = self.training / f"autopsy-{dump.step}"
        try:
            dump.save(path, model, first_nonfinite)
            saved = f"repeat it with `headway replay {path}`"
        except (DiskError, TrainingError) as error:
            saved = f"the batch could not be saved: {error}"
        return (
            f"step {dump.step}: the loss or its gradient is not finite; first seen at: {first_nonfinite}; "
            f"batch: {format_locations(dump.batch.where)}. "
            f"The weights were not updated: lower lr or check these lines; {saved}"
        )


def gradients_of(model: nn.Module) -> list[Tensor]:
    return [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def clip_gradients(grads: list[Tensor], norm: Tensor, limit: float) -> None:
    """Scale gradients, in place, so that their total norm is at most `limit`."""
    torch._foreach_mul_(grads, torch.clamp(limit / (norm + 1e-6), max=1.0))


def _read_split(path: Path) -> int:
    if not is_present(path):
        return 0
    try:
        return from_dict(SplitFile, read_json(path, inside=path.parent.parent), path=str(path))["accumulate"]
    except (ConfigError, CheckpointError) as error:
        raise TrainingError(f"{error}; remove the file") from error
