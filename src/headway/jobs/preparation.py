"""Before the first step: reads, checks and tokenises the data in one pass, and builds the model."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, cast

import torch

from headway import tasks
from headway.bundle import Bundle, load
from headway.checkpoints import TensorFiles, read_json, save_json
from headway.data.check import Checker
from headway.data.dataset import Dataset
from headway.data.report import Report
from headway.data.row import Row
from headway.errors import ConfigError, HeadwayError, TrainingError
from headway.generation.defaults import SEARCH as SEARCH_KEYS
from headway.jobs.run_config import Plan, make_plan, open_data, unusual_settings
from headway.jobs.run_folder import INITIAL, PLAN, SCORES, Paths, require_writable
from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import Recipe
from headway.preprocess.processor import Processor
from headway.tasks.batches import ExampleSource, StreamSource, encoded_ahead, prepare
from headway.tasks.task import Task
from headway.training.settings import Settings

TIMED = 32  # examples of the batch whose gradients are timed

Say = Callable[[str], None]


@dataclass
class Prepared:
    """What training needs of a run; only the first process has a report."""

    bundle: Bundle
    source: ExampleSource | StreamSource
    report: Report | None = None


def refuse_existing(folder: Path) -> None:
    if (folder / "training" / PLAN).exists():
        raise ConfigError(
            f"{folder}: holds an earlier run; resume it (--resume, headway.resume) or choose another output folder"
        )
    require_writable(folder)


@contextmanager
def removed_unless_started(folder: Path, *, is_new: bool) -> Iterator[None]:
    """Context in which a run cannot start if an error of Headway's is raised: a folder it has created is removed."""
    remove = is_new and not folder.exists()
    try:
        yield
    except HeadwayError:
        if remove:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def require_initial_weights(folder: Path) -> None:
    """Raise unless the weights of a run without states are those before its first step."""
    path = folder / "training" / INITIAL
    changed = path.exists() and read_json(path) != TensorFiles(folder).checksums()
    if changed or (folder / "training" / SCORES).exists():
        raise TrainingError(
            f"{folder}: its states are gone (training/state-*) and its weights are trained ones, so the run cannot be "
            "repeated from its start. Restore a state, or start a new run in another folder"
        )


def prepare_run(plan: Plan, folder: Path, data: Dataset, *, say: Say, resume: bool) -> Prepared:
    """Writes model, tokenizer, task, plan and prepared examples to the folder, or loads them from it, and reports."""
    settings = plan.settings()
    if resume:
        bundle = load(folder)
    else:
        torch.manual_seed(settings.seed)
        bundle = initial_bundle(plan, data)
        bundle.model.eval()
    task, rows = bundle.find_task(), data.train()
    checker = Checker(limits=task.length_limits())
    source = make_source(task, data, folder, settings=settings, say=say, checker=checker, rows=rows)
    if not resume:
        bundle.save(folder)
        bundle.set_folder(folder, read_json(folder / "config.json"))
        save_json(folder / "training" / INITIAL, TensorFiles(folder).checksums())
        save_json(folder / "training" / PLAN, dataclasses.asdict(plan))
    report = finish_report(checker, rows, data, settings=plan.settings())
    report.extra |= estimate(plan, bundle, sample=source.first_examples(TIMED), examples=len(source))
    for line in [f"{plan.task}, recipe {plan.recipe}", *report.summary()]:
        say(line)
    return Prepared(bundle, source, report)


def initial_bundle(plan: Plan, data: Dataset) -> Bundle:
    """The untrained model with its task: from scratch, or adapted from the model it starts from."""
    kind = tasks.find(plan.task)
    start = load(plan.start, dtype="float32") if plan.start is not None else None
    task = kind.from_data(data.train, tokenizer=start.processor.tokenizer if start else None, options=plan.options)
    if start is not None:
        model = task.adapt(start.model)
        dropped = ("id2label", "label2id", "num_labels", *SEARCH_KEYS)  # this task decides them
        foreign = {key: value for key, value in start.foreign.items() if key not in dropped}
        task.generation_defaults = start.generation.tokens_only()
        return Bundle(
            cast(Any, model),
            start.family,
            cast(Any, model.config),
            task.processor(start.processor),
            foreign=foreign,
            task=task,
            generation=task.generation_defaults,
        )
    recipe = cast(Recipe, plan.recipe)
    config = task.config(plan.size(), recipe)
    model = build(config)
    initialise(model, recipe, seed=plan.settings().seed)
    return Bundle(model, "headway", config, task.processor(Processor()), None, {}, task)


def make_source(
    task: Task, data: Dataset, folder: Path, *, settings: Settings, say: Say, checker: Checker | None = None,
    rows: Iterator[Row] | None = None,
) -> ExampleSource | StreamSource:  # fmt: skip
    """The examples of `rows` (the training rows unless given), prepared in the run's folder or opened from it."""
    key = json.dumps([data.fingerprint, task.name, task.to_dict(), task.tokenizer.digest if task.tokenizer else ""])
    store = prepare(
        task, data.train() if rows is None else rows, folder / "training" / "examples", key=key,
        progress=_counting(say), say=say, checker=checker,
    )  # fmt: skip
    if task.stream:
        context = cast(Any, task).context
        return StreamSource(
            store.flat("ids"),
            task,
            context=context,
            batch=settings.batch,
            seed=settings.seed,
            fingerprint=data.fingerprint,
        )
    unit = cast(Any, settings.batch_unit)
    return ExampleSource(store, task, batch=settings.batch, unit=unit, seed=settings.seed, fingerprint=data.fingerprint)


def _counting(say: Say) -> Callable[[int], None]:
    """A callback that reports the number of prepared examples every ten seconds."""
    last = time.monotonic()

    def count(examples: int) -> None:
        nonlocal last
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            say(f"preparing    {examples:,} examples")

    return count


def check(
    task: str,
    data: Paths | None = None,
    *,
    start: str | Path | None = None,
    size: str | None = None,
    recipe: str | None = None,
    valid: Paths | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Reports on `data` (default: the built-in data) and on what training for `task` needs; the arguments are those of
    `train`."""
    plan = make_plan(
        task,
        data,
        start=start,
        size=size,
        recipe=recipe,
        valid=valid,
        columns=columns,
        encoding=encoding,
        settings=settings,
    )
    return check_plan(plan)


def check_plan(plan: Plan) -> Report:
    """Reports on the data and on what training needs, in one pass over the data and a few gradients."""
    data = open_data(plan).load()
    bundle = initial_bundle(plan, data)
    task = bundle.find_task()
    checker, sample, sampled = Checker(limits=task.length_limits()), list[Any](), 0
    rows = data.train()
    for row in encoded_ahead(task, rows):
        checker.add(row, task.token_lengths(row))
        if len(sample) < TIMED:
            sampled += len(row.fields["text"]) if row.fields.get("running") else 1
            sample += task.examples(row)
    report = finish_report(checker, rows, data, settings=plan.settings())
    examples = (report.characters[0] or report.examples) * task.example_count(sample) / sampled if sample else 0
    report.extra |= estimate(plan, bundle, sample=sample, examples=examples)
    return report


def finish_report(checker: Checker, rows: Iterator[Row], data: Dataset, *, settings: Settings) -> Report:
    """The report after all training `rows` were added."""
    checker.skipped = getattr(rows, "skipped", {})
    for row in data.valid():
        checker.add_held_out(row)
    report = checker.report()
    report.warnings += unusual_settings(settings)
    report.extra["data"] = f"{data.name} ({data.layout})"
    return report


def estimate(plan: Plan, bundle: Bundle, *, sample: list[Any], examples: float) -> dict[str, str]:
    """Memory by counting, time by computing gradients on `sample`; `examples` is their number in an epoch."""
    settings, task, model = plan.settings(), bundle.find_task(), bundle.model
    count = sum(p.numel() for p in model.parameters())
    size = training_bytes(model, settings) / 2**20
    out = {"model": f"{count:,} parameters; weights, gradients and optimiser {size:,.0f} MiB"}
    if not sample:
        return out
    sample = task.sample(sample, min(TIMED, settings.batch))  # a larger batch may need more memory than there is
    batch, small = (
        task.collate(part, seeds=[(0, 0, i) for i in range(len(part))], where=[""] * len(part))
        for part in (sample, sample[:2])
    )
    was = model.training
    model.train()
    with torch.random.fork_rng(devices=[]):
        task.loss(model, small).total.backward()  # what only the first pass does is not timed
        began = time.perf_counter()
        task.loss(model, batch).total.backward()
        seconds = time.perf_counter() - began
        model.zero_grad(set_to_none=True)
    model.train(was)
    if settings.minutes:
        out["time"] = f"{settings.minutes:g} minutes, as asked"
    elif settings.batch_unit == "examples":
        steps = settings.steps or settings.epochs * ceil(examples / settings.batch)
        needed = steps * settings.batch * seconds / len(sample)
        out["time"] = f"about {needed / 60:.1f} minutes for {steps:,} steps on this machine"
    return out


def show_plan(plan: Plan, *, say: Say) -> None:
    """Prints what `--dry-run` shows: the check, and the full config."""
    for line in check_plan(plan).summary():
        say(line)
    say(json.dumps(dataclasses.asdict(plan), indent=2))


def training_bytes(model: torch.nn.Module, settings: Settings) -> int:
    """Weights, gradients, and at most two values per weight for the optimiser (one for Muon's matrices)."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return weights + trained * (3 + (1 if settings.average else 0))
