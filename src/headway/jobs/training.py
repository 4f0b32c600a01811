"""`check` and `train`: from a file (or the built-in data) to a trained model folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch

from headway import tasks
from headway.bundle import Bundle, load
from headway.checkpoints import save_json
from headway.data.dataset import first_rows
from headway.distributed import init_distributed, pick_device
from headway.errors import DataError
from headway.jobs.card import write_card
from headway.jobs.preparation import (
    Prepared,
    Say,
    make_source,
    prepare_run,
    refuse_existing,
    removed_unless_started,
    require_initial_weights,
)
from headway.jobs.run_config import Plan, make_plan, open_data, saved_plan
from headway.jobs.run_folder import PLAN, SCORES, Paths
from headway.memory import peak_memory
from headway.tasks.distributed import use_ranks
from headway.training.loop import FitResult, fit
from headway.training.lora import add_lora, freeze, merge_lora
from headway.training.peft_files import save_lora
from headway.training.progress import ProgressLine
from headway.training.state import states

ADAPTER = "adapter"  # folder of a run with LoRA: its adapters in the layout of PEFT
EVALUATED = 500  # held-out rows looked at during training; the last evaluation sees them all


@dataclass
class Trained:
    bundle: Bundle
    result: FitResult
    scores: dict[str, float]
    folder: Path

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"<Trained: {self.folder}, {self.result.steps:,} steps{', ' + scores if scores else ''}>"


def train(
    task: str,
    data: Paths | None = None,
    *,
    out: str | Path | None = None,
    start: str | Path | None = None,
    size: str | None = None,
    recipe: str | None = None,
    valid: Paths | None = None,
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    lora: int = 0,
    freeze: Sequence[str] = (),
    callbacks: Iterable[Any] = (),
    say: Say | None = None,
) -> Trained:
    """Trains for `task` on `data` (default: the built-in data) and saves into `out` (default runs/TASK).

    `start` is a trained model to fine-tune; `size` and `recipe` apply to a model from scratch. `settings` are overrides
    by name (`lr`, `task.limit`, `model.width`). `say` receives the lines that the command prints.
    """
    plan = make_plan(
        task,
        data,
        start=start,
        size=size,
        recipe=recipe,
        valid=valid,
        columns=columns,
        encoding=encoding,
        steps=steps,
        epochs=epochs,
        minutes=minutes,
        seed=seed,
        settings=settings,
        lora=lora,
        freeze=freeze,
    )
    return run_plan(plan, Path(out or f"runs/{task}"), callbacks=callbacks, say=say)


def resume(folder: str | Path, *, callbacks: Iterable[Any] = (), say: Say | None = None) -> Trained:
    """Goes on with a run exactly where it stopped."""
    return run_plan(saved_plan(folder), Path(folder), callbacks=callbacks, say=say, resume=True)


def run_plan(
    plan: Plan, folder: Path, *, callbacks: Iterable[Any] = (), say: Say | None = None, resume: bool = False
) -> Trained:
    """Trains by `plan` in `folder`. The first process prepares the run there and trains what it built; the other
    processes, and every resumed run, load it from the folder."""
    settings, opened = plan.settings(), open_data(plan)
    world = init_distributed(pick_device(settings.device))
    resume = world.broadcast(resume or started_again(folder))
    if say is None or not world.is_main:
        say = _silent
    with removed_unless_started(folder, is_new=world.is_main and not resume):
        if not resume:
            world.run_on_main(lambda: refuse_existing(folder))
        data = opened.load()
        prepared = world.run_on_main(lambda: prepare_run(plan, folder, data, say=say, resume=resume))
        if prepared is None:
            bundle = load(folder)
            prepared = Prepared(bundle, make_source(bundle.find_task(), data, folder, settings=settings, say=say))
        bundle, source, report = prepared.bundle, prepared.source, prepared.report
        data = replace(data, train=opened.train)  # training rows need not stay in memory
        task = bundle.find_task()
        held = first_rows(data.valid, EVALUATED)
        if not held:
            raise DataError(
                f"{data.name}: nothing is held out to evaluate on; give more examples, or held-out data as `valid`"
            )
        rules = bundle.tensor_rules()
        model = learner(plan, bundle, say)
    cut = task.truncation.summary()
    for line in cut:
        say(f"cut          {line}")
    if report is not None and report.held_out > len(held):
        say(f"evaluating   on the first {len(held):,} of {report.held_out:,} held-out examples; at the end on all")
    begun = resume and world.broadcast(bool(states(folder / "training")))
    if resume and not begun:
        world.run_on_main(lambda: require_initial_weights(folder))
        say("no state had been saved yet, so the run begins at its first step")
    result = fit(
        model,
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
        if result.exit_code == 0 and report is not None and plan.start is not None:
            save_lora(model, folder / ADAPTER, base=str(plan.start), rules=rules)
        merge_lora(model)
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
        if result.best is not None:
            say(f"kept         the weights of step {result.best_step:,}, the best by {task.metric} ({result.best:.4g})")
        say(f"trained {result.steps:,} steps in {result.seconds / 60:.1f} minutes; peak memory {memory}")
    return Trained(bundle, result, scores, folder)


def started_again(folder: Path) -> bool:
    """Whether torchrun has started this process anew after another one's death, and a run is there to go on with."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and (folder / "training" / PLAN).exists()


def learner(plan: Plan, bundle: Bundle, say: Say) -> torch.nn.Module:
    """The bundle's model as the loop is given it: adapters added, parts frozen."""
    for parameter in bundle.model.parameters():
        parameter.data = parameter.data.contiguous()
    if plan.lora:
        add_lora(bundle.model, rank=plan.lora, alpha=2.0 * plan.lora, train_heads=True)
    if plan.freeze:
        say(str(freeze(bundle.model, plan.freeze)))
    return bundle.model


def _silent(text: str) -> None:
    pass


def progress(plan: Plan) -> ProgressLine:
    return ProgressLine(unit=plan.train["batch_unit"], score=tasks.find(plan.task).metric)
