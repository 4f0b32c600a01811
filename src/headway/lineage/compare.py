"""`compare`: the models that led to the Transformer, and two Transformers, on one data set.

Every model has the same data, tokenizer, number of parameters (as nearly as its width allows), training time and seeds,
and the same settings: nothing is chosen for one of them.
Each run is an ordinary run folder in a process of its own; runs that have ended are not repeated, and an interrupted
one is resumed.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import SIGINT
from typing import Any

import torch

from headway import tasks
from headway.checkpoints import save_json
from headway.data.dataset import first_rows
from headway.data.row import Row
from headway.errors import ConfigError, TrainingError, did_you_mean
from headway.files import is_present
from headway.jobs.columns import Columns
from headway.jobs.preparation import Say
from headway.jobs.run_config import Plan, make_plan, open_data
from headway.jobs.run_folder import PLAN, SCORES, Paths, read_run_json, run_file
from headway.jobs.runs import run_summary
from headway.jobs.training import run_plan
from headway.limited_process import start_process
from headway.loading import load
from headway.memory import peak_memory
from headway.models.build import build
from headway.models.recipes import CELLS, RECURRENT, Size
from headway.tasks.task import Task
from headway.training.protocols import Callback, Status

TRANSFORMERS = ("classic", "modern")
DEFAULT_MODELS = {
    "translate": ("rnn", "lstm", "lstm-bahdanau", "classic", "modern"),
    "summarize": ("lstm", "lstm-bahdanau", "classic", "modern"),
    "generate": ("rnn", "gru", "lstm", "classic", "modern"),
    "classify": ("rnn", "gru", "lstm", "classic", "modern"),
    "tag": ("rnn", "gru", "lstm", "classic", "modern"),
}
WATCHED = "compare.json"  # in training/: what a run's process measured
MOMENTS = (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the training time, at which a held-out example is predicted
ROWS = 500  # held-out rows that are scored
WIDTHS = range(16, 2049, 8)


@dataclass(frozen=True)
class Contender:
    """One model of the comparison."""

    name: str
    size: Size
    parameters: int

    @property
    def recipe(self) -> str:
        return self.name if self.name in TRANSFORMERS else "modern"

    @property
    def settings(self) -> dict[str, Any]:
        out: dict[str, Any] = {f"model.{name}": value for name, value in dataclasses.asdict(self.size).items()}
        return out if self.name in TRANSFORMERS else out | {"task.architecture": self.name}


@dataclass(frozen=True)
class ContenderRun:
    contender: Contender
    seed: int
    folder: Path


def run_all(
    task: str,
    data: Paths | None = None,
    *,
    models: Sequence[str] | None = None,
    minutes: float = 5.0,  # of all runs together
    each: float | None = None,  # minutes of every run, instead
    seeds: int = 1,
    out: Path,
    size: str | None = None,
    columns: Columns | None = None,
    encoding: str | None = None,
    valid: Paths | None = None,
    settings: Mapping[str, Any] | None = None,
    say: Say,
) -> list[ContenderRun]:
    """Trains every model with every seed and returns the runs."""
    names = check_models(task, models)
    if seeds < 1 or (each if each is not None else minutes) <= 0:
        raise ConfigError("compare needs at least one seed and a time above 0")
    budget = each if each is not None else minutes / (len(names) * seeds)
    reading: dict[str, Any] = {"columns": columns, "encoding": encoding, "valid": valid}
    plan = make_plan(task, data, size=size, minutes=budget, settings=settings, **reading)
    if tasks.find(task).variant(plan.options) is not tasks.find(task):
        raise ConfigError(f"compare {task}: task.method={plan.options['method']} has one kind of model; leave it out")
    contenders = equal_parameters(plan, names)
    say(f"{len(names)} models × {seeds} seed{'s' * (seeds > 1)}, {60 * budget:.0f} s of training each; in {out}")
    for contender in contenders:
        say(f"  {contender.name:14} {contender.parameters:>12,} parameters, width {contender.size.width}")
    runs = [ContenderRun(one, seed, out / f"{one.name}-{seed}") for seed in range(seeds) for one in contenders]
    for number, run in enumerate(runs, 1):
        own = make_plan(
            task,
            data,
            recipe=run.contender.recipe,
            minutes=budget,
            seed=run.seed,
            settings={**(settings or {}), **run.contender.settings, "train.eval_every": 0},
            **reading,
        )
        own = dataclasses.replace(own, choose=False)
        train_in_process(own, run.folder, say=say, label=f"{number}/{len(runs)}  {run.contender.name}, seed {run.seed}")
    return runs


def check_models(task: str, models: Sequence[str] | None) -> tuple[str, ...]:
    if task not in DEFAULT_MODELS:
        raise ConfigError(f"compare: task {task!r} is not one of {', '.join(DEFAULT_MODELS)}")
    known = (*(RECURRENT if task in ("translate", "summarize") else CELLS), *TRANSFORMERS)
    names = tuple(dict.fromkeys(models)) if models else DEFAULT_MODELS[task]
    for name in names:
        if name not in known:
            raise ConfigError(f"model {name!r} is not known; {did_you_mean(name, known)}: {', '.join(known)}")
    return names


def equal_parameters(plan: Plan, names: Sequence[str]) -> list[Contender]:
    """The models with the widths at which they have about as many parameters as the modern Transformer."""
    kind = tasks.find(plan.task)
    data = open_data(plan).load()
    task = kind.from_data(kind.scan(data.train()), tokenizer=None, options=dict(plan.options))
    base = plan.size()
    wanted = count(task, base, "modern")
    out = []
    for name in names:
        widths = [width for width in WIDTHS if width % (2 * base.heads) == 0] if name in TRANSFORMERS else WIDTHS
        best = _closest(task, base, name, wanted, list(widths))
        out.append(Contender(name, best, count(task, best, name)))
    return out


def _closest(task: Task, base: Size, name: str, wanted: int, widths: list[int]) -> Size:
    """By bisection: the number of parameters grows with the width."""
    sizes = [
        dataclasses.replace(base, width=width, heads=base.heads if name in TRANSFORMERS else 2) for width in widths
    ]
    low, high = 0, len(sizes) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if count(task, sizes[middle], name) < wanted else (low, middle)
    return min((sizes[low], sizes[high]), key=lambda size: abs(count(task, size, name) - wanted))


def count(task: Task, size: Size, name: str) -> int:
    """The parameters of a model for this task, without allocating it."""
    recipe: Any = name if name in TRANSFORMERS else "modern"
    own: Any = copy.copy(task)
    own.architecture = "transformer" if name in TRANSFORMERS else name
    model = build(own.config(size, recipe), device="meta")
    return sum(parameter.numel() for parameter in model.parameters())


# ---------------------------------------------------------------------------------------- one run


class Watcher(Callback):
    """Predicts one held-out example at some moments of the training, and measures the memory of the process."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.folder, self.seconds = plan, folder, plan.train["minutes"] * 60
        self.seen: list[dict[str, Any]] = (read_run_json(folder, WATCHED) or {}).get("seen", [])

    def on_start(self, status: Status) -> None:
        self.task = load(self.folder).find_task()
        (row,) = first_rows(open_data(self.plan).load().valid, 1)
        self.sample = sample_input(self.task, row)

    def on_log(self, status: Status, metrics: dict[str, float]) -> None:
        if len(self.seen) < len(MOMENTS) and status.elapsed >= MOMENTS[len(self.seen)] * self.seconds:
            self.look(status)

    def on_end(self, status: Status) -> None:
        if len(self.seen) < len(MOMENTS) and status.elapsed >= self.seconds:
            self.look(status)
        save_json(run_file(self.folder, WATCHED), {"seen": self.seen, "memory": peak_memory()})

    def look(self, status: Status) -> None:
        was_training, model = status.model.training, status.model
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            text = predicted_text(self.task, model.eval(), self.sample)
        model.train(was_training)
        self.seen.append({"step": status.step, "seconds": round(status.elapsed, 2), "text": text})


def predicted_text(task: Task, model: Any, sample: Any) -> str:
    (found,) = task.predict(model, [sample], **({"beams": 1} if task.prediction_kind.generates else {}))
    return found if isinstance(found, str) else str(found.get("label", found) if isinstance(found, dict) else found)


def sample_input(task: Task, row: Row) -> Any:
    """The input that every model is given as it learns."""
    return row.fields["text"][:60] if task.stream else task.model_input(row)


def train_in_process(plan: Plan, folder: Path, *, say: Say, label: str) -> None:
    if is_present(run_file(folder, SCORES)):
        say(f"{label}: trained already")
        return
    begun = time.monotonic()
    process = start_process(_train, plan, folder)
    try:
        process.join()
    except KeyboardInterrupt:
        process.join()  # the child has the signal too, and saves
        raise
    if not is_present(run_file(folder, SCORES)):
        raise TrainingError(
            f"{folder}: its training stopped (exit code {process.exitcode}); the same command goes on from here"
        )
    name, value = run_summary(folder).score or ("score", math.nan)
    say(f"{label}: {name} {value:.4g} ({time.monotonic() - begun:.0f} s)")


def _train(plan: Plan, folder: Path) -> None:
    try:
        run_plan(plan, folder, callbacks=[Watcher(plan, folder)], resume=is_present(run_file(folder, PLAN)))
    except KeyboardInterrupt:  # before the first step; during training the signal is caught, and the run is saved
        raise SystemExit(128 + SIGINT) from None
