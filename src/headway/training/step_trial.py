"""Memory and time of a training step, from trying parts of the loop's own step on a copy of the model."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from headway.data.batch import Batch
from headway.distributed import World
from headway.memory import heap_peak, keep_freed_memory
from headway.training.activation_checkpointing import checkpoint_blocks
from headway.training.allocations import FREED, AllocationLog, AllocationSegment, Event, live_peak
from headway.training.loop import TrainingRun
from headway.training.protocols import LossFunction
from headway.training.settings import Settings

STEPS = 3  # that are simulated: the optimiser state is allocated in the first one
# Of the growth of a process, measured for several tasks (docs/train.md):
HEAP = 1.12  # by what tensors need of its heap: small allocations lie between them
KERNELS = 14 << 20  # bytes: buffers and generated code of the kernels
PASS_SECONDS = 0.2  # of one timed pass, about; a longer one is timed with fewer examples
UPDATES = 2  # that are timed; the shortest counts


Load = Callable[[Sequence[Any]], Batch]  # collates examples


@dataclass(frozen=True)
class StepMemory:
    """Bytes at the peak of a step, by what they are for."""

    weights: int
    gradients: int
    optimizer: int  # state and buffers of the optimisers, and the EMA
    activations: int  # and everything else that lives only during the step
    growth: int  # of the process: all but the weights, and the gaps of its heap

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.activations


@dataclass(frozen=True)
class StepProfile:
    """The recorded parts of a step, from which the memory of a step with any number of examples follows: every tensor
    has a fixed size, or one in proportion to the examples."""

    weights: int
    gradients: int
    average: int  # the EMA
    examples: int  # of the recorded passes; the second of each pair has one more
    loading: tuple[AllocationSegment, AllocationSegment]  # collating a batch
    first: tuple[AllocationSegment, AllocationSegment]  # a pass that allocates the gradients
    updates: tuple[
        AllocationSegment, AllocationSegment
    ]  # the first one, which allocates the state of the optimisers; and the second
    is_heap: bool  # the device is a CPU: tensors are in the heap of the process

    def memory(self, examples: int, *, passes: int, ranks: int = 1) -> StepMemory:
        """Of a step in `passes` micro-batches of so many examples on each of the `ranks`."""
        factor = examples - self.examples
        loading, first = (one.scaled(two, factor) for one, two in (self.loading, self.first))
        further = [first.without_kept()] if passes > 1 else []
        events = list(self._events([*[loading] * passes, first, *further]))  # all batches are collated first
        peak = live_peak(events)
        buckets = self.gradients if ranks > 1 else 0  # DDP's copy of the gradients
        optimizer = self.average + sum(self.updates[0].kept.values())
        return StepMemory(
            weights=self.weights,
            gradients=self.gradients + buckets,
            optimizer=optimizer,
            activations=peak - self.gradients - optimizer,
            growth=round(HEAP * heap_peak(events) + KERNELS if self.is_heap else peak) + buckets,
        )

    def _events(self, passes: Sequence[AllocationSegment]) -> Iterator[Event]:
        yield 0, self.average
        start = 1
        for step in range(STEPS):
            freed_later = list[int]()
            for part in passes:
                yield from ((start + number, size) for number, size in part.events)
                freed_later += [start + number for number in part.kept]
                start += part.count
            update = self.updates[min(step, 1)]
            yield from ((start + number, size) for number, size in update.events)
            freed_later += [start + number for number in update.kept] if step else []
            start += update.count
            yield from ((number, FREED) for number in freed_later)


@dataclass(frozen=True)
class StepTime:
    """Seconds on free cores."""

    passes: float  # loading, forward and backward passes of a batch, on average over the batches that were tried
    update: float  # clipping, optimisers, EMA
    slowdown: float  # how many times longer it takes now, since other processes use the cores

    @property
    def total(self) -> float:
        return self.passes + self.update


class StepTrial:
    """Tries passes and updates on a model, whose weights they change. The random state stays as it is."""

    def __init__(self, model: nn.Module, *, loss: LossFunction, settings: Settings, device: torch.device) -> None:
        self.model = model.train()
        self.run = TrainingRun(
            self.model, _NoSource(), loss=loss, settings=settings, training=Path(), world=World(), device=device
        )
        self.device = device
        self.clock = _Clock(device)

    @contextmanager
    def active(self) -> Iterator[None]:
        keep_freed_memory()  # as the loop does
        with torch.random.fork_rng(devices=[]), ExitStack() as stack:
            if self.run.settings.checkpoint_activations:
                stack.enter_context(checkpoint_blocks(self.model))
            yield

    def profile(self, examples: Sequence[Any], *, load: Load) -> StepProfile:
        """Records a pass and updates over these examples, and over a batch that has the first of them once more."""
        existing = [*self.model.parameters(), *self.model.buffers()]
        average = list(self.run.ema.state_dict()["mean"].values()) if self.run.ema is not None else []
        log = AllocationLog([*existing, *average])
        gc.disable()  # a collection would free tensors at another time in each pass
        try:
            with log:
                self._pass(load(examples[:1]))  # the first pass ever allocates tables that stay
                loading, batch = log.recorded(lambda: load(examples))
                loading_more, larger = log.recorded(lambda: load([*examples, examples[0]]))
                first, gradients = self._recorded(log, batch)
                updates = self._recorded_updates(log, gradients)
                first_larger, _ = self._recorded(log, larger)
        finally:
            gc.enable()
        return StepProfile(
            weights=_storage_bytes(existing),
            gradients=sum(p.grad.nbytes for p in self.model.parameters() if p.grad is not None),
            average=_storage_bytes(average),
            examples=len(examples),
            loading=(loading, loading_more),
            first=(first, first_larger),
            updates=updates,
            is_heap=self.device.type == "cpu",
        )

    def _recorded_updates(self, log: AllocationLog, gradients: Any) -> tuple[AllocationSegment, AllocationSegment]:
        first, _ = log.recorded(lambda: self.run.update(gradients))
        second, _ = log.recorded(lambda: self.run.update(gradients))
        return first, second

    def _recorded(self, log: AllocationLog, batch: Batch) -> tuple[AllocationSegment, Any]:
        self.run.optimizers.zero_grad()
        return log.recorded(lambda: self._pass(batch))

    def time(self, groups: Sequence[Sequence[Any]], sizes: Sequence[float], *, load: Load) -> StepTime:
        """`groups` are examples of typical micro-batches, of batches of these sizes; `load` collates some."""
        seconds = [
            self._seconds(group, load=load) * size / len(group) for group, size in zip(groups, sizes, strict=True)
        ]
        gradients = self._pass(load(groups[0][:1]))
        update = min(self.clock.seconds(lambda: self.run.update(gradients)) for _ in range(UPDATES))
        return StepTime(sum(seconds) / len(seconds), update, self.clock.slowdown)

    def _seconds(self, group: Sequence[Any], *, load: Load) -> float:
        """Of a pass over the group: measured up to as many examples as take `PASS_SECONDS`, and beyond by what further
        examples take. A part of a pass does not depend on their number, such as dense gradients of embeddings."""
        size, tried = 1, list[tuple[int, float]]()
        while True:
            part = [group[index * len(group) // size] for index in range(size)]  # evenly over the group
            began = time.perf_counter()
            batch = load(part)
            loading = time.perf_counter() - began
            seconds = self.clock.seconds(partial(self._pass, batch))
            if seconds < PASS_SECONDS:  # the first pass also prepares kernels
                seconds = min(seconds, self.clock.seconds(partial(self._pass, batch)))
            tried.append((size, seconds + loading / self.clock.slowdown))
            if size == len(group) or (len(tried) > 1 and seconds > PASS_SECONDS / 2):
                break
            size = min(len(group), max(size + 1, ceil(size * min(8, PASS_SECONDS / seconds))))
        (few, first), (many, last) = tried[0], tried[-1]
        further = (last - first) / (many - few) if many > few else 0.0
        return last + max(0.0, min(further, last / many)) * (len(group) - many)

    def _pass(self, batch: Batch) -> Any:
        return self.run.stepper.forward_backward([batch], count=max(1, batch.count), rows=batch.rows)


class _Clock:
    """Measures seconds on free cores.

    On a CPU the thread that trains is never idle within a pass, so its processor time is what a pass takes if no other
    process uses the cores.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.wall = self.own = 0.0

    @property
    def slowdown(self) -> float:
        """Wall-clock time in relation to the seconds measured so far."""
        return max(1.0, self.wall / self.own) if self.own else 1.0

    def seconds(self, action: Callable[[], object]) -> float:
        self._wait()
        began, own = time.perf_counter(), time.thread_time()
        action()
        self._wait()
        wall = time.perf_counter() - began
        own = time.thread_time() - own if self.device.type == "cpu" else wall
        self.wall, self.own = self.wall + wall, self.own + own
        return own

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


class _NoSource:
    """A source of no examples: the batches are given."""

    fingerprint = ""

    def epoch(self, number: int) -> Sequence[np.ndarray]:
        return ()

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        raise NotImplementedError


def _storage_bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum({(storage := tensor.untyped_storage())._cdata: storage.nbytes() for tensor in tensors}.values())
