"""Before the first step: reads, checks and tokenises the data in one pass, and builds the model."""

from __future__ import annotations

import dataclasses
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch

from headway import tasks
from headway.bundle import Bundle
from headway.checkpoints import TensorFiles, read_json, save_json
from headway.data.check import Checker
from headway.data.columns import listing
from headway.data.dataset import Dataset
from headway.data.facts import Facts
from headway.data.report import Report
from headway.data.row import Row, Skipped
from headway.data.store_writer import has_progress
from headway.data.tables import Tables, as_tables
from headway.errors import ConfigError, DiskError, HeadwayError, TrainingError
from headway.files import is_present
from headway.generation.defaults import SEARCH as SEARCH_KEYS
from headway.jobs.budget import fit_budget
from headway.jobs.columns import Columns
from headway.jobs.cost import Estimator, RowSample, Workload
from headway.jobs.failures import holds_run, require_packages
from headway.jobs.run_config import Plan, complete, facts_of, make_plan, open_data, unusual_settings
from headway.jobs.run_folder import (
    EXAMPLES,
    HELD_OUT,
    INITIAL,
    PLAN,
    SCORES,
    TRAINING,
    read_run_json,
    require_writable,
    run_file,
)
from headway.loading import load
from headway.memory import return_freed_memory
from headway.models.build import build
from headway.models.ensemble import network_of
from headway.models.init import initialise
from headway.models.recipes import Recipe
from headway.preprocess.processor import Processor
from headway.tasks.batches import ExampleSource, StreamSource, encoded_ahead, prepare
from headway.tasks.task import Task
from headway.training.nonfinite import is_out_of_memory
from headway.training.settings import Settings
from headway.training.state import lock_folder

Say = Callable[[str], None]


@dataclass
class Prepared:
    """What training needs of a run; only the first process has a report."""

    bundle: Bundle
    source: ExampleSource | StreamSource
    plan: Plan
    report: Report | None = None


def refuse_existing(folder: Path) -> None:
    if holds_run(folder):
        raise ConfigError(
            f"{folder}: holds an earlier run; resume it (--resume, headway.resume) or choose another output folder"
        )
    require_writable(folder)


@contextmanager
def locked_run(folder: Path, *, resume: bool) -> Iterator[bool]:
    """Hold the lock of a run folder, which has no run yet unless it is resumed. Yields whether it is a new one."""
    training, is_new = folder / TRAINING, not resume and not folder.exists()
    if not resume:
        refuse_existing(folder)  # also without a lock: nothing is created
    try:
        with lock_folder(training):
            if not resume:
                refuse_existing(folder)
            yield is_new
    finally:
        with suppress(OSError):
            training.rmdir()  # if nothing was written


@contextmanager
def removed_unless_started(folder: Path, *, is_new: bool) -> Iterator[None]:
    """Context in which a run cannot start if an error of Headway's is raised: a folder that `is_new` is removed. If
    the disk is full, prepared examples stay for another try."""
    try:
        yield
    except HeadwayError as error:
        if is_new and not (isinstance(error, DiskError) and has_progress(run_file(folder, EXAMPLES))):
            shutil.rmtree(folder, ignore_errors=True)
        raise


def require_initial_weights(folder: Path) -> None:
    """Raise unless the weights of a run without states are those before its first step."""
    initial = read_run_json(folder, INITIAL)
    if initial != TensorFiles(folder).checksums() or is_present(run_file(folder, SCORES)):
        raise TrainingError(
            f"{folder}: its states are gone (training/state-*) and its weights are trained ones, so the run cannot be "
            "repeated from its start. Restore a state, or start a new run in another folder"
        )


def prepare_run(plan: Plan, folder: Path, data: Dataset, *, facts: Facts | None, say: Say, ranks: int = 1) -> Prepared:
    """Writes model, tokenizer, task, plan and prepared examples to the folder and reports; without facts the run is a
    resumed one, which loads them from it. The micro-batches of a new run are fitted to the memory there is."""
    settings, resume = plan.settings(), facts is None
    if facts is None:
        bundle = load(folder)
    else:
        torch.manual_seed(settings.seed)
        bundle = initial_bundle(plan, facts)
        bundle.model.eval()
        plan = fit_budget(plan, bundle, facts, ranks=ranks)
        settings = plan.settings()
        bundle.find_task().fit_initial(bundle.model, facts)
    task, rows = bundle.find_task(), data.train()
    task.start_training()
    if task.uses_reference:
        task.set_reference(bundle.model, check=partial(require_initial_weights, folder) if resume else None)
    checker = task.checker()
    source = make_source(task, data, folder, settings=settings, say=say, checker=checker, rows=rows)
    if task.uses_reference:
        task.set_reference(None)  # stored: from here on the weights change
    report = finish_report(checker, rows, data, task=task, settings=settings)
    plan = estimated(plan, bundle, Workload.of_source(source, settings), report=report, ranks=ranks, fit=not resume)
    if not resume:
        bundle.save(folder)
        bundle.set_folder(folder, read_json(folder / "config.json"))
        save_json(run_file(folder, INITIAL), TensorFiles(folder).checksums())
        save_json(run_file(folder, PLAN), dataclasses.asdict(plan))
    for line in [f"{plan.task}, recipe {plan.recipe}", *report.summary()]:
        say(line)
    return Prepared(bundle, source, plan, report)


def initial_bundle(plan: Plan, facts: Facts) -> Bundle:
    """The untrained model with its task: from scratch, or adapted from the model it starts from."""
    kind = tasks.find(plan.task).variant(plan.options)
    start = load(plan.start, dtype="float32") if plan.start is not None else None
    task = kind.from_data(facts, tokenizer=start.processor.tokenizer if start else None, options=plan.options)
    task.use_columns(facts.columns)
    if start is not None:
        model = task.adapt(network_of(start.model))
        dropped = ("id2label", "label2id", "num_labels", "problem_type", *SEARCH_KEYS)  # this task decides them
        foreign = {key: value for key, value in start.foreign.items() if key not in dropped}
        task.generation_defaults = start.generation.tokens_only()
        return Bundle(
            cast(Any, model),
            start.family,
            task.processor(start.processor),
            foreign=foreign,
            task=task,
            generation=task.generation_defaults,
        )
    recipe = cast(Recipe, plan.recipe)
    config = task.config(plan.size(), recipe)
    model = build(config)
    initialise(model, recipe, seed=plan.settings().seed)
    return Bundle(model, "headway", task.processor(Processor()), None, {}, task)


def make_source(
    task: Task, data: Dataset, folder: Path, *, settings: Settings, say: Say, checker: Checker | None = None,
    rows: Iterator[Row] | None = None,
) -> ExampleSource | StreamSource:  # fmt: skip
    """The examples of `rows` (the training rows unless given), prepared in the run's folder or opened from it."""
    key = json.dumps([data.fingerprint, task.name, task.to_dict(), task.tokenizer.digest if task.tokenizer else ""])
    store = prepare(
        task, data.train() if rows is None else rows, run_file(folder, EXAMPLES), key=key,
        progress=_counting(say), say=say, checker=checker,
    )  # fmt: skip
    if task.uses_reference:
        with task.count_truncation():
            task.use_held_out(prepare(task, data.valid(), run_file(folder, HELD_OUT), key=key, say=say))
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
    data: Any = None,
    *,
    start: str | Path | None = None,
    size: str | None = None,
    recipe: str | None = None,
    valid: Any = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    columns: Columns | None = None,
    encoding: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Reports on `data` (files or a table, as for `train`; default: the built-in data) and on what training for `task`
    needs; the arguments are those of `train`.

    >>> rows = [{"text": f"a fine day {n}", "label": "good"} for n in range(30)]
    >>> rows += [{"text": f"rain again {n}", "label": "bad"} for n in range(30)]
    >>> report = headway.check("classify", rows)
    >>> sorted(report.labels), report.examples + report.held_out
    (['bad', 'good'], 60)
    """
    tables = as_tables(data, valid=valid)
    plan = make_plan(
        task,
        data if tables is None else None,
        start=start,
        size=size,
        recipe=recipe,
        valid=valid if tables is None else None,
        text=text,
        label=label,
        columns=columns,
        encoding=encoding,
        settings=settings,
    )
    return check_plan(plan, tables)


def check_plan(plan: Plan, tables: Tables | None = None) -> Report:
    """Reports on the data and on what training needs, in one pass over the data and a few gradients."""
    return check_data(*completed(plan, tables))[0]


def completed(plan: Plan, tables: Tables | None = None) -> tuple[Plan, Dataset, Facts]:
    require_packages(plan)
    data = open_data(plan, tables).load()
    facts = facts_of(plan, data)
    return complete(plan, facts), data, facts


def check_data(plan: Plan, data: Dataset, facts: Facts) -> tuple[Report, Plan]:
    """The report, and the plan with the micro-batches that fit."""
    bundle = initial_bundle(plan, facts)
    plan = fit_budget(plan, bundle, facts)
    task, settings, rows = bundle.find_task(), plan.settings(), data.train()
    if task.uses_reference:
        task.set_reference(bundle.model.eval())
    checker, sample = task.checker(), RowSample(settings)
    for row in encoded_ahead(task, rows):
        lengths = task.token_lengths(row)
        checker.add(row, lengths)
        sample.add(row, lengths)
    report = finish_report(checker, rows, data, task=task, settings=settings)
    return report, estimated(plan, bundle, sample.workload(task, report), report=report)


def finish_report(checker: Checker, rows: Iterator[Row], data: Dataset, *, task: Task, settings: Settings) -> Report:
    """The report after all training `rows` were added."""
    held_out = data.valid()
    for row in held_out:
        checker.add_held_out(row)
    checker.skipped = Skipped(getattr(rows, "skipped", {})) + getattr(held_out, "skipped", {})
    report = checker.report()
    report.warnings += unused_texts(data, task) + unusual_settings(settings)
    report.extra |= {"target": line} if (line := task.target_line()) else {}
    report.extra["data"] = f"{data.name} ({data.layout})"
    return report


def unused_texts(data: Dataset, task: Task) -> list[str]:
    """A line for each column that holds texts and is not read."""
    pairs = "text" in data.columns and "text_pair" in task.optional_fields and "text_pair" not in data.columns
    out = []
    for column in data.unused:
        names = " ".join(f"--text {listing([name])[1:-1]}" for name in (data.columns["text"], column)) if pairs else ""
        both = f" For pairs of texts name both: {names}." if pairs else ""
        out.append(f"Column {listing([column])} holds texts too and is not used.{both}")
    return out


def estimated(plan: Plan, bundle: Bundle, work: Workload, *, report: Report, ranks: int = 1, fit: bool = True) -> Plan:
    """Adds memory and time of the run to the report. The plan, with `fit` divided into micro-batches that fit."""
    model, settings, task = bundle.model, plan.settings(), bundle.find_task()
    report.extra |= {**plan.why, "model": f"{sum(p.numel() for p in model.parameters()):,} parameters"}
    if not work.examples:
        return plan
    try:
        cost = Estimator(plan, task, model, work, ranks=ranks).cost(held_out=min(report.held_out, settings.eval_rows))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return_freed_memory()
        report.warnings.append("memory does not suffice to try a step of two examples; use a smaller model or length")
        return plan
    return_freed_memory()  # of the model's copy
    report.extra |= cost.lines(settings, generates=task.prediction_kind.several_passes)
    report.estimates, report.warnings = cost.numbers(), report.warnings + cost.warnings()
    return dataclasses.replace(plan, train=plan.train | {"accumulate": cost.accumulate}) if fit else plan


def show_plan(plan: Plan, *, say: Say) -> None:
    """Prints what `--dry-run` shows: the check, and the full config."""
    report, plan = check_data(*completed(plan))
    for line in report.summary():
        say(line)
    for line in json.dumps(dataclasses.asdict(plan), indent=2).splitlines():
        say(line)
