"""What training takes: the memory of its largest step, the micro-batches that fit the memory there is, and its time."""

from __future__ import annotations

import copy
import dataclasses
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import torch
from torch import nn

from headway.data.batch import Batch
from headway.data.batch_sampler import BatchSampler
from headway.data.report import Report
from headway.data.row import Row
from headway.distributed import pick_device
from headway.jobs.run_config import Plan
from headway.memory import available_memory, resident_memory
from headway.tasks.batches import ExampleSource, StreamSource
from headway.tasks.task import Example, Task
from headway.training.lora import prepare_parameters
from headway.training.settings import Settings, interval
from headway.training.step_trial import StepMemory, StepProfile, StepTime, StepTrial

SAMPLE = 256  # examples from which typical batches are formed
TIMED = 3  # of these batches, by length
COMPACT = 1 << 30  # bytes of the process: fine-tuning is divided into micro-batches for it on a CPU …
EFFICIENT = 1024  # … of at least so many tokens, where smaller ones would take longer
USABLE = 0.9  # the share of the available memory that a step is fitted into
PAGE = 4096  # bytes
BUSY = 1.25  # a slowdown from which on it is reported
MIB, GIB = 2**20, 2**30


@dataclass(frozen=True)
class Workload:
    """The examples of a data set in short: some of them, the longest of them, and how many an epoch has."""

    examples: Sequence[Example]  # evenly from the whole data
    longest: Sequence[Example]  # for one batch
    count: float

    @classmethod
    def of_source(cls, source: ExampleSource | StreamSource, settings: Settings) -> Workload:
        return cls(source.spread_examples(SAMPLE), source.longest_examples(longest_count(settings)), len(source))


class RowSample:
    """Rows taken evenly from a data set of unknown length, and its longest rows."""

    def __init__(self, settings: Settings) -> None:
        self._step, self._count, self._even = 1, 0, list[Row]()
        self._longest, self._most = list[tuple[int, int, Row]](), longest_count(settings)

    def add(self, row: Row, lengths: Mapping[str, int]) -> None:
        if self._count % self._step == 0:
            self._even.append(row)
            if len(self._even) > 2 * SAMPLE:
                self._even, self._step = self._even[::2], 2 * self._step
        entry = (sum(lengths.values()), -self._count, row)
        (heapq.heappush if len(self._longest) < self._most else heapq.heappushpop)(self._longest, entry)
        self._count += 1

    def workload(self, task: Task, report: Report) -> Workload:
        if task.own_job:  # it is not trained in steps of the loop
            return Workload([], [], 0)
        examples, read = list[Example](), 0
        for row in self._even:
            if len(examples) >= SAMPLE:
                break
            read += len(row.fields["text"]) if row.fields.get("running") else 1
            examples += task.training_examples(row)
        if not examples:
            return Workload([], [], 0)
        count = (report.characters[0] or report.examples) * task.example_count(examples) / read
        if task.stream:
            windows = task.sample(examples, self._most)
            return Workload(windows, windows, count)
        longest = [example for _, _, row in sorted(self._longest)[::-1] for example in task.training_examples(row)]
        longest.sort(key=task.length)
        return Workload(examples[:SAMPLE], longest[-self._most :], count)


def longest_count(settings: Settings) -> int:
    return settings.batch if settings.batch_unit == "examples" else SAMPLE


@dataclass(frozen=True)
class Cost:
    """Sizes are bytes of one process; times are on free cores."""

    memory: StepMemory
    accumulate: int  # micro-batches per batch
    rows: int  # examples of a micro-batch, at most
    whole: int  # growth of the process if a batch is not divided
    resident: int | None  # memory of the process before the first step
    available: int | None
    step: StepTime
    steps: int
    evaluation: float  # seconds of all evaluations; 0 if unknown

    @property
    def fits(self) -> bool:
        return self.available is None or self.memory.growth <= USABLE * self.available

    @property
    def peak(self) -> int:
        """Of the process."""
        return (self.resident or self.memory.weights) + self.memory.growth

    @property
    def seconds(self) -> float:
        return self.steps * self.step.total + self.evaluation

    def numbers(self) -> dict[str, float]:
        """For programs."""
        values = {f"{name}_bytes": size for name, size in dataclasses.asdict(self.memory).items()}
        values |= {"peak_bytes": self.peak, "accumulate": self.accumulate, "steps": self.steps}
        return values | {"seconds": self.seconds, "step_seconds": self.step.total, "slowdown": self.step.slowdown}

    def lines(self, settings: Settings, *, generates: bool) -> dict[str, str]:
        """For the report."""
        out = {"memory": self._memory_line()}
        if self.accumulate > settings.accumulate:
            fits = self.available is None or self.whole <= USABLE * self.available
            have = "" if fits else f", and {_size(self.available or 0)} are available"
            out["micro-batch"] = (
                f"a batch is computed in {self.accumulate} parts of {self.rows}: undivided it needs "
                f"{_size(self.whole)} more{have}; the batch stays the same"
            )
        busy = ""
        if self.step.slowdown >= BUSY:
            busy = f"; other processes use the cores, which now makes it {self.step.slowdown:.1f} times as long"
        steps = f"{self.steps:,} steps of {_time(self.step.total)}"
        if settings.minutes:
            out["time"] = f"{settings.minutes:g} minutes, as set; about {steps}{busy}"
        else:
            without = "; evaluations, which generate, come in addition" if generates else ""
            out["time"] = f"about {_time(self.seconds)} on this machine: {steps}{without}{busy}"
        return out

    def _memory_line(self) -> str:
        memory = self.memory
        parts = {
            "weights": memory.weights,
            "gradients": memory.gradients,
            "optimiser": memory.optimizer,
            f"activations of {self.rows} examples": memory.growth - memory.gradients - memory.optimizer,
        }
        if self.resident is not None:
            parts = {"Python and libraries": max(0, self.resident - memory.weights), **parts}
        listed = ", ".join(f"{name} {_size(size)}" for name, size in parts.items())
        available = f"; {_size(self.available)} are available" if self.available is not None else ""
        return f"about {_size(self.peak)} at most: {listed}{available}"

    def warnings(self) -> list[str]:
        if self.fits:
            return []
        size = "a single example" if self.rows == 1 else f"a micro-batch of {self.rows} examples"
        hint = "use a smaller model or a shorter length" if self.rows == 1 else "leave out accumulate to have it fitted"
        return [f"{size} needs {_size(self.memory.growth)} and {_size(self.available or 0)} are available; {hint}"]


def _size(size: int) -> str:
    return f"{size / GIB:.2f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"


def _time(seconds: float) -> str:
    if seconds >= 90:
        return f"{seconds / 60:.1f} minutes"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


class Estimator:
    """Estimates the cost of a run by trying steps on a copy of its model."""

    def __init__(self, plan: Plan, task: Task, model: nn.Module, work: Workload, *, ranks: int = 1) -> None:
        self.settings, self.task, self.work, self.ranks = plan.settings(), task, work, ranks
        self.is_given = "train.accumulate" in (plan.given or [])
        self.device = pick_device(self.settings.device)
        self.compact = plan.recipe == "finetune" and task.budgeted and self.device.type == "cpu"
        self.model, model = model, sharing_weights(model)
        with torch.random.fork_rng(devices=[]):
            prepare_parameters(model, lora=plan.lora, frozen=plan.freeze)
        for parameter in model.parameters():
            if parameter.requires_grad:  # the others stay as they are
                parameter.data = parameter.data.clone()
        self.profile: StepProfile | None = None
        self.trial = StepTrial(model, loss=self.task.loss, settings=self.settings, device=self.device)

    def step_time(self) -> StepTime:
        """Of batches that are not divided."""
        with self.trial.active():
            return self._time(self.settings.batch)[0]

    def cost(self, *, held_out: int) -> Cost:
        for parameter in self.model.parameters():
            parameter.detach().flatten()[:: PAGE // parameter.element_size()].sum()  # may be in a file that is mapped
        resident, available = resident_memory(), device_memory(self.device)
        group = max(self.groups(self.work.longest), key=self._padded)
        group = group[-ceil(len(group) / self.ranks) :]  # of one rank
        with self.trial.active():
            accumulate = self.settings.accumulate
            memory = [self._memory(group, accumulate)]
            while not self.is_given and accumulate < len(group):
                fits = available is None or memory[-1].growth <= USABLE * available
                if fits and not (self.compact and self._divisible(group, accumulate, memory[-1], resident)):
                    break
                accumulate *= 2
                memory.append(self._memory(group, accumulate))
            rows = ceil(len(group) / accumulate)
            step, per_epoch = self._time(rows)
        steps = self._steps(step, per_epoch)
        return Cost(
            memory=memory[-1],
            accumulate=accumulate,
            rows=rows,
            whole=memory[0].growth,
            resident=resident,
            available=available,
            step=step,
            steps=steps,
            evaluation=self._evaluation(step, steps, per_epoch=per_epoch, held_out=held_out),
        )

    def _divisible(self, group: Sequence[Example], accumulate: int, memory: StepMemory, resident: int | None) -> bool:
        """Whether micro-batches half as large need less memory than is usual, and no more time."""
        large = (resident or memory.weights) + memory.growth > COMPACT
        return large and self._padded(group) / (2 * accumulate) >= EFFICIENT

    def _memory(self, group: Sequence[Example], accumulate: int) -> StepMemory:
        if self.profile is None:
            pair = [group[-1], group[len(group) // 2]]  # of different lengths, if those of the batch differ
            self.profile = self.trial.profile(pair, load=self._load)
        return self.profile.memory(ceil(len(group) / accumulate), passes=accumulate, ranks=self.ranks)

    def _time(self, rows: int) -> tuple[StepTime, int]:
        """The time of a step in micro-batches of `rows` examples, and the number of steps of an epoch."""
        groups = sorted(self.groups(self.work.examples), key=self._padded)
        places = sorted({round((2 * place + 1) / (2 * TIMED) * (len(groups) - 1)) for place in range(TIMED)})
        chosen = [groups[place] for place in places]
        share = 1 / self.ranks
        found = self.trial.time([g[:rows] for g in chosen], [share * len(g) for g in chosen], load=self._load)
        batch = len(self.work.examples) / len(groups) if self.settings.batch_unit == "tokens" else self.settings.batch
        return found, ceil(self.work.count / batch)

    def _steps(self, step: StepTime, per_epoch: int) -> int:
        settings = self.settings
        return settings.steps or settings.epochs * per_epoch or max(1, int(settings.minutes * 60 / step.total))

    def _evaluation(self, step: StepTime, steps: int, *, per_epoch: int, held_out: int) -> float:
        """Of a task that does not generate: a forward pass is about a third of a training pass."""
        unit, size = interval("eval_every", self.settings.eval_every)
        if self.task.prediction_kind.several_passes or unit == "seconds":
            return 0.0
        times = steps / per_epoch if unit == "epoch" else steps / size if size else 0
        return max(1.0, times) * held_out * step.passes / self.settings.batch / 3

    def groups(self, examples: Sequence[Example]) -> list[list[Example]]:
        """The examples in batches as the run forms them."""
        settings, lengths = self.settings, np.array([self.task.length(example) for example in examples])
        unit: Any = settings.batch_unit
        sampler = BatchSampler(lengths, batch=settings.batch, unit=unit, shuffle=False, bucket=not self.task.stream)
        return [[examples[index] for index in batch] for batch in sampler.epoch(0)]

    def _padded(self, group: Sequence[Example]) -> int:
        return len(group) * max(self.task.length(example) for example in group)

    def _load(self, examples: Sequence[Example]) -> Batch:
        """Copies of an example are augmented alike."""
        first = {id(example): index for index, example in reversed(list(enumerate(examples)))}
        seeds = [(0, 0, first[id(example)]) for example in examples]
        examples = [
            {**example, "partners": [self.work.examples[place] for place in partners]} if partners else example
            for example, partners in (
                (example, self.task.partners(seed, len(self.work.examples)))
                for example, seed in zip(examples, seeds, strict=True)
            )
        ]
        return self.task.collate(examples, seeds=seeds, where=[""] * len(examples))


def sharing_weights(model: nn.Module) -> nn.Module:
    """A copy of the model whose parameters have the same memory."""
    own = {id(each): nn.Parameter(each.detach(), requires_grad=each.requires_grad) for each in model.parameters()}
    return copy.deepcopy(model, dict[int, Any](own))


def device_memory(device: torch.device) -> int | None:
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else available_memory()
