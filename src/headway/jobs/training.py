"""`check` and `train`: from a file (or the built-in data) to a trained model folder."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, cast

import torch

from headway import tasks
from headway.bundle import Bundle, load
from headway.checkpoints import save_json
from headway.data.check import check as check_rows
from headway.data.dataset import Dataset, first_rows
from headway.data.report import Report
from headway.distributed import init_distributed, pick_device
from headway.errors import ConfigError, DataError
from headway.generation.defaults import SEARCH as SEARCH_KEYS
from headway.jobs.card import write_card
from headway.jobs.run_config import Plan, make_plan, open_data, saved_plan
from headway.jobs.run_folder import PLAN, SCORES, Paths
from headway.memory import peak_memory
from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import Recipe
from headway.preprocess.processor import Processor
from headway.tasks.batches import ExampleSource, StreamSource, prepare
from headway.tasks.distributed import use_ranks
from headway.tasks.task import Task
from headway.training.loop import FitResult, fit
from headway.training.lora import add_lora, freeze, merge_lora
from headway.training.progress import ProgressLine
from headway.training.settings import Settings
from headway.training.state import states

EVALUATED = 500  # held-out rows looked at during training; the last evaluation sees them all

TIMED = 32  # examples of the batch whose gradients are timed

Say = Callable[[str], None]


@dataclass
class Trained:
    bundle: Bundle
    result: FitResult
    scores: dict[str, float]
    folder: Path


def begin(plan: Plan, data: Dataset) -> Bundle:
    """The model before its first step, with its task: from scratch, or made ready from the one it starts from."""
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


def check(plan: Plan, *, data: Dataset | None = None, bundle: Bundle | None = None) -> Report:
    """What a person should know before training, in seconds."""
    data = data or open_data(plan)
    bundle = bundle or begin(plan, data)
    task = bundle.find_task()
    report = check_rows(data.train(), held_out=data.valid(), measure=task.token_lengths, limits=task.length_limits())
    report.extra["data"] = f"{data.name} ({data.layout})"
    report.extra |= estimate(plan, data, bundle, found=report)
    return report


def estimate(plan: Plan, data: Dataset, bundle: Bundle, *, found: Report) -> dict[str, str]:
    """Memory by counting, time by taking one real step's gradients on the first examples."""
    settings, task, model = plan.settings(), bundle.find_task(), bundle.model
    count = sum(p.numel() for p in model.parameters())
    size = training_bytes(model, settings) / 2**20
    out = {"model": f"{count:,} parameters; weights, gradients and optimiser {size:,.0f} MiB"}
    sample, sampled = list[Any](), 0
    for row in data.train():
        sampled += len(row.fields["text"]) if found.characters[0] else 1
        sample += task.examples(row)
        if len(sample) >= TIMED:
            break
    if not sample:
        return out
    examples = (found.characters[0] or found.examples) * task.example_count(sample) / sampled
    sample = task.sample(sample, min(TIMED, settings.batch))  # a larger batch may be more than there is room for
    batch = task.collate(sample, seeds=[(0, 0, i) for i in range(len(sample))], where=[""] * len(sample))
    seconds = []
    was = model.training
    model.train()
    with torch.random.fork_rng(devices=[]):
        for _ in range(2):
            began = time.perf_counter()
            task.loss(model, batch).total.backward()
            seconds.append(time.perf_counter() - began)
            model.zero_grad(set_to_none=True)
    model.train(was)
    if settings.minutes:
        out["time"] = f"{settings.minutes:g} minutes, as asked"
    elif settings.batch_unit == "examples":
        steps = settings.steps or settings.epochs * ceil(examples / settings.batch)
        needed = steps * settings.batch * min(seconds) / len(sample)
        out["time"] = f"about {needed / 60:.1f} minutes for {steps:,} steps on this machine"
    return out


def train(
    task: str,
    data: Paths | None = None,
    *,
    out: str | Path | None = None,
    callbacks: Iterable[Any] = (),
    say: Say | None = None,
    **planned: Any,
) -> Trained:
    """Trains for `task` and saves into `out` (default runs/TASK). `make_plan` says what can be planned."""
    return run_plan(make_plan(task, data, **planned), Path(out or f"runs/{task}"), callbacks=callbacks, say=say)


def resume(folder: str | Path, *, callbacks: Iterable[Any] = (), say: Say | None = None) -> Trained:
    """Goes on with a run exactly where it stopped."""
    return run_plan(saved_plan(folder), Path(folder), callbacks=callbacks, say=say, resume=True)


def run_plan(
    plan: Plan, folder: Path, *, callbacks: Iterable[Any] = (), say: Say | None = None, resume: bool = False
) -> Trained:
    """Trains by `plan` in `folder`. The first process lays the run out on disk; then every process, and every resumed
    run, begins by opening it there, so that all of them begin alike."""
    settings, data = plan.settings(), open_data(plan)
    world = init_distributed(pick_device(settings.device))
    resume = world.broadcast(resume or started_again(folder))
    if say is None or not world.is_main:
        say = _silent
    if not resume:
        world.run_on_main(lambda: lay_out(plan, folder, data, say=say))
    bundle = load(folder)
    task = bundle.find_task()
    report = world.run_on_main(lambda: announce(plan, data, bundle, say))
    if resume and world.size > 1:  # should the examples be damaged, one process prepares them again
        world.run_on_main(lambda: make_source(task, data, folder, settings=settings, say=say))
    source = make_source(task, data, folder, settings=settings, say=say)
    cut = task.truncation.summary()
    for line in cut:
        say(f"cut          {line}")
    held = first_rows(data.valid, EVALUATED)
    if not held:
        raise DataError(f"{data.name}: nothing is held out to evaluate on; give more examples or a --valid file")
    if report is not None and report.held_out > len(held):
        say(f"evaluating   on the first {len(held):,} of {report.held_out:,} held-out examples; at the end on all")
    begun = resume and world.broadcast(bool(states(folder / "training")))
    if resume and not begun:
        say("no state had been saved yet, so the run begins at its first step")
    result = fit(
        learner(plan, bundle, say),
        source,
        loss=task.loss,
        settings=settings,
        folder=folder,
        evaluate=lambda model: task.quick_evaluate(cast(Any, model), held),
        score=task.metric,
        higher_is_better=task.higher_is_better,
        callbacks=callbacks,
        resume=begun,
    )
    if plan.lora:
        merge_lora(bundle.model)
    scores: dict[str, float] = {}
    if result.exit_code == 0:
        with use_ranks(world):
            found = task.quick_evaluate(bundle.model, data.valid())
    if result.exit_code == 0 and report is not None:
        scores = found
        bundle.save(folder)
        save_json(folder / "training" / SCORES, scores)
        write_card(folder, bundle=bundle, plan=plan, result=result, scores=scores, report=report, data=data, cut=cut)
        peak = peak_memory()
        memory = "unknown" if peak is None else f"{peak / 2**30:.2f} GiB"
        say(f"trained {result.steps:,} steps in {result.seconds / 60:.1f} minutes; peak memory {memory}")
    return Trained(bundle, result, scores, folder)


def started_again(folder: Path) -> bool:
    """Whether torchrun has started this process anew after another one's death, and a run is there to go on with."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and (folder / "training" / PLAN).exists()


def lay_out(plan: Plan, folder: Path, data: Dataset, *, say: Say) -> None:
    """The run before its first step, on disk: model, tokenizer, task, plan and prepared examples."""
    if (folder / "training" / PLAN).exists():
        raise ConfigError(f"{folder}: holds an earlier run; go on with it by --resume, or choose another --out")
    torch.manual_seed(plan.settings().seed)
    bundle = begin(plan, data)
    make_source(bundle.find_task(), data, folder, settings=plan.settings(), say=say)
    bundle.save(folder)
    save_json(folder / "training" / PLAN, dataclasses.asdict(plan))


def learner(plan: Plan, bundle: Bundle, say: Say) -> torch.nn.Module:
    """The bundle's model as the loop is given it: adapters added, parts frozen."""
    for parameter in bundle.model.parameters():
        parameter.data = parameter.data.contiguous()
    if plan.lora:
        add_lora(bundle.model, rank=plan.lora, alpha=2.0 * plan.lora, train_heads=True)
    if plan.freeze:
        say(str(freeze(bundle.model, plan.freeze)))
    return bundle.model


def announce(plan: Plan, data: Dataset, bundle: Bundle, say: Say) -> Report:
    report = check(plan, data=data, bundle=bundle)
    for line in [f"{plan.task}, recipe {plan.recipe}", *report.summary()]:
        say(line)
    return report


def _silent(text: str) -> None:
    pass


def make_source(
    task: Task, data: Dataset, folder: Path, *, settings: Settings, say: Say
) -> ExampleSource | StreamSource:
    """Examples prepared once under the run's folder and mapped into memory from then on."""
    key = json.dumps([data.fingerprint, task.name, task.to_dict(), task.tokenizer.digest if task.tokenizer else ""])
    store = prepare(task, data.train(), folder / "training" / "examples", key=key, progress=_counting(say), say=say)
    if task.stream:
        context = cast(Any, task).context
        tokens = store.flat("ids")
        return StreamSource(
            tokens, task, context=context, batch=settings.batch, seed=settings.seed, fingerprint=data.fingerprint
        )
    unit = cast(Any, settings.batch_unit)
    return ExampleSource(store, task, batch=settings.batch, unit=unit, seed=settings.seed, fingerprint=data.fingerprint)


def _counting(say: Say) -> Callable[[int], None]:
    """Says every ten seconds how many examples are prepared."""
    last = time.monotonic()

    def count(examples: int) -> None:
        nonlocal last
        if time.monotonic() - last >= 10:
            last = time.monotonic()
            say(f"preparing    {examples:,} examples")

    return count


def show_plan(plan: Plan, *, say: Say) -> None:
    """What `--dry-run` says: the check, and the full config."""
    for line in check(plan).summary():
        say(line)
    say(json.dumps(dataclasses.asdict(plan), indent=2))


def progress(plan: Plan) -> ProgressLine:
    return ProgressLine(unit=plan.train["batch_unit"], score=tasks.find(plan.task).metric)


def training_bytes(model: torch.nn.Module, settings: Settings) -> int:
    """Weights, gradients, and at most two numbers a weight for the optimiser (one for Muon's matrices)."""
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return weights + trained * (3 + (1 if settings.average else 0))
