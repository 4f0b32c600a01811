"""`check` and `train`: from a file (or the built-in data) to a trained model folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from headway import tasks
from headway.baselines import Baseline, baseline_lines
from headway.bundle import Bundle
from headway.checkpoints import save_json
from headway.checkpoints.saved import ADAPTER, remove_weights
from headway.data.facts import Facts
from headway.data.split import drawn_rows
from headway.distributed import init_distributed, pick_device
from headway.errors import ConfigError, DataError, did_you_mean
from headway.files import is_present
from headway.jobs.card import write_card
from headway.jobs.columns import Columns
from headway.jobs.failures import noted_failure, refuse_finished, require_packages
from headway.jobs.inference import require_finite
from headway.jobs.memory_tables import as_files
from headway.jobs.notebook import plot_curves, run_html
from headway.jobs.outcome import baselines, run_warnings
from headway.jobs.preparation import (
    Prepared,
    Say,
    locked_run,
    make_source,
    prepare_run,
    removed_unless_started,
    require_initial_weights,
)
from headway.jobs.prune import drop_states
from headway.jobs.run_config import Plan, complete, facts_of, make_plan, open_data, saved_plan, with_length
from headway.jobs.run_folder import BASELINES, PLAN, SCORES, TRAINING, require_own_folders, run_file
from headway.jobs.runs import named_score
from headway.kinds.predictions import is_better_higher
from headway.loading import load
from headway.memory import peak_memory
from headway.tasks.distributed import use_ranks
from headway.tasks.task import Task
from headway.training.loop import FitResult, fit
from headway.training.lora import merge_lora, prepare_parameters
from headway.training.peft_files import save_lora
from headway.training.progress import ProgressLine
from headway.training.protocols import Callback, Status
from headway.training.settings import Settings
from headway.training.state import lock_folder, states

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SCORED = 8  # held-out rows, to see which scores there are
CONSTANTS = {  # among the scores of `evaluate`: properties of the data, equal whatever the weights are
    "majority", "mean_mae", "unigram", "chance", "lead_rouge1", "lead_rouge2", "lead_rougeL", "tokens", "examples",
    "unread", "unknown_labels",
}  # fmt: skip


@dataclass
class Trained:
    bundle: Bundle
    result: FitResult
    scores: dict[str, float]
    folder: Path
    warnings: list[str] = field(default_factory=list)  # that the run diverged or is not better than a baseline
    baselines: list[Baseline] = field(default_factory=list)  # on the same held-out examples

    def to_dict(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": str(self.folder),
            "steps": self.result.steps,
            "seconds": self.result.seconds,
            "stopped_by": self.result.stopped_by,
            "best_step": self.result.best_step,
            "scores": self.scores,
            "baselines": [asdict(each) for each in self.baselines],
            "warnings": self.warnings,
        }

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
        return f"<Trained: {self.folder}, {self.result.steps:,} steps{', ' + scores if scores else ''}>"

    def plot(self) -> Figure:
        """The curves of the run as a matplotlib figure: training loss, and each score of the evaluations."""
        return plot_curves(self.folder)

    def _repr_html_(self) -> str:
        title = f"{self.folder}, {self.result.steps:,} steps"
        return run_html(self.folder, self.scores, title=title, warnings=self.warnings)


def train(
    task: str,
    data: Any = None,
    *,
    out: str | Path | None = None,
    start: str | Path | None = None,
    size: str | None = None,
    recipe: str | None = None,
    valid: Any = None,
    text: str | Sequence[str] | None = None,
    label: str | None = None,
    columns: Columns | None = None,
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

    `data` is a file or folder, several, a pattern (`data/*.csv`), or a table: a pandas or Polars DataFrame, an Arrow
    table, a `datasets.Dataset`, a list of dicts, a dict of columns. A table is written to `training/data` in the run
    folder, from where the run is resumed and evaluated. `valid` is held-out data, given in the same way.

    Columns are found by name and content, or named: `text="body", label="stars"`, two texts as `text=["a", "b"]`; those
    of other fields by `columns={"words": "tokens"}`.

    `start` is a trained model to fine-tune; `size` and `recipe` apply to a model from scratch. `settings` are overrides
    by name (`lr`, `task.limit`, `model.width`). `say` receives the lines that the command prints.

    >>> rows = [{"text": "what a fine day", "label": "good"}, {"text": "rain again today", "label": "bad"}] * 20
    >>> small = {"model.width": 16, "model.layers": 1, "model.heads": 2, "vocab": 100, "keep_states": True}
    >>> trained = headway.train("classify", rows, valid=rows[:2], out="weather", steps=30, settings=small)
    >>> trained.bundle("what a fine day")["label"]
    'good'
    >>> figure = trained.plot()
    """
    folder = Path(out or f"runs/{task}")
    with as_files(data, folder, valid=valid, task=task, say=say) as (files, held, say):
        plan = make_plan(
            task,
            files,
            start=start,
            size=size,
            recipe=recipe,
            valid=held,
            text=text,
            label=label,
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
        return run_plan(plan, folder, callbacks=callbacks, say=say)


def resume(
    folder: str | Path,
    *,
    steps: int | None = None,
    epochs: int | None = None,
    minutes: float | None = None,
    callbacks: Iterable[Any] = (),
    say: Say | None = None,
) -> Trained:
    """Goes on with a run exactly where it stopped; given another length, extends it, finished or not.

    >>> headway.resume("weather", steps=32).result.steps
    32
    """
    plan = with_length(saved_plan(folder), steps=steps, epochs=epochs, minutes=minutes)
    return run_plan(plan, Path(folder), callbacks=callbacks, say=say, resume=True)


def run_plan(
    plan: Plan,
    folder: Path,
    *,
    callbacks: Iterable[Any] = (),
    say: Say | None = None,
    resume: bool = False,
    with_baselines: bool = True,
) -> Trained:
    """Trains by `plan` in `folder`. The first process prepares the run there and trains what it built; the other
    processes, and every resumed run, load it from the folder."""
    require_own_folders(folder)
    if resume:
        refuse_finished(folder)
    with ExitStack() as stack:
        if os.environ.get("RANK", "0") == "0":
            stack.enter_context(noted_failure(folder, is_new=not resume and not started_again(folder)))
        return _run_plan(
            plan, folder, callbacks=callbacks, say=say, resume=resume, stack=stack, with_baselines=with_baselines
        )


def _run_plan(
    plan: Plan, folder: Path, *, callbacks: Iterable[Any], say: Say | None, resume: bool, stack: ExitStack,
    with_baselines: bool,
) -> Trained:  # fmt: skip
    if path := tasks.find(plan.task).variant(plan.options).own_job:
        return own_job(path)(plan, folder, callbacks=callbacks, say=say or _silent, resume=resume)
    require_packages(plan)
    settings, opened = plan.settings(), open_data(plan)
    world = init_distributed(pick_device(settings.device))
    if not resume and world.broadcast(started_again(folder)):
        plan, resume = world.broadcast(world.run_on_main(lambda: saved_plan(folder))), True  # with what was chosen
    if say is None or not world.is_main:
        say = _silent
    is_new = world.run_on_main(lambda: stack.enter_context(locked_run(folder, resume=resume)))
    with removed_unless_started(folder, is_new=bool(is_new)):
        data, facts = opened.load(), None
        if not resume:
            facts = world.run_on_main(lambda: facts_of(plan, data))
            plan = world.broadcast(world.run_on_main(lambda: complete(plan, cast(Facts, facts))))
            settings = plan.settings()
        prepared = world.run_on_main(lambda: prepare_run(plan, folder, data, facts=facts, say=say, ranks=world.size))
        plan = world.broadcast(prepared and prepared.plan)
        settings = plan.settings()
        if prepared is None:
            bundle = load(folder)
            bundle.find_task().start_training()
            prepared = Prepared(bundle, make_source(bundle.find_task(), data, folder, settings=settings, say=say), plan)
        bundle, source, report = prepared.bundle, prepared.source, prepared.report
        data = replace(data, train=opened.train)  # training rows need not stay in memory
        task = bundle.find_task()
        held = drawn_rows(data.valid(), settings.eval_rows)
        if not held:
            raise DataError(
                f"{data.name}: nothing is held out to evaluate on; give more examples, or held-out data (--valid)"
            )
        if settings.score and prepared.report is not None:
            require_score(settings.score, task.quick_evaluate(bundle.model, held[:SCORED]))
        rules = bundle.tensor_rules()
        model = learner(plan, bundle, say)
    cut = task.truncation.summary()
    for line in cut:
        say(f"cut          {line}")
    if report is not None and report.held_out > len(held):
        say(f"evaluating   on {len(held):,} of {report.held_out:,} held-out examples, drawn at random; all at the end")
    begun = resume and world.broadcast(bool(states(folder / "training")))
    if resume and not begun:
        world.run_on_main(lambda: require_initial_weights(folder))
        say("no state had been saved yet, so the run begins at its first step")
    score, higher_is_better = kept_score(task, settings)
    result = fit(
        model,
        source,
        loss=task.loss,
        settings=settings,
        folder=folder,
        evaluate=lambda model: task.quick_evaluate(cast(Any, model), held),
        score=score,
        higher_is_better=higher_is_better,
        callbacks=[*callbacks, _OnStart(folder, plan, say)],
        resume=begun,
    )
    if result.exit_code == 0:  # running until its scores are saved
        world.run_on_main(lambda: stack.enter_context(lock_folder(folder / TRAINING)))
        with use_ranks(world):
            for line in task.finish_training(bundle.model, data.valid()):
                say(line)
    if plan.lora:
        if result.exit_code == 0 and report is not None and plan.start is not None:
            save_lora(model, folder / ADAPTER, base=str(plan.start), rules=rules)
        merge_lora(model)
    scores, warnings, beside = dict[str, float](), list[str](), list[Baseline]()
    if result.exit_code == 0:
        with use_ranks(world):
            found = task.quick_evaluate(bundle.model, data.valid())
    if result.exit_code == 0 and report is not None:
        scores = found
        bundle.save(folder)
        if settings.adapter_only:
            remove_weights(folder)
        require_finite(scores)
        if with_baselines:
            beside = baselines(task, scores, train=data.train, rows=list(data.valid()))
        warnings = run_warnings(result, scores, task=task, settings=settings, beside=beside)
        write_card(
            folder, bundle=bundle, plan=plan, result=result, scores=scores, report=report, data=data, cut=cut,
            warnings=warnings, beside=beside,
        )  # fmt: skip
        save_json(run_file(folder, BASELINES), {"baselines": [asdict(each) for each in beside]})
        save_json(run_file(folder, SCORES), scores)  # last: it says that the run has come to its end
        drop_states(folder, kept=settings.keep_states)
        peak = peak_memory()
        memory = "unknown" if peak is None else f"{peak / 2**30:.2f} GiB"
        if result.best is not None:
            say(f"kept         the weights of step {result.best_step:,}, the best by {score} ({result.best:.4g})")
        say(f"trained {result.steps:,} steps in {result.seconds / 60:.1f} minutes; peak memory {memory}")
        for line in baseline_lines(beside, scores, metric=task.metric):
            say(f"baseline     {line}")
        for warning in warnings:
            say(f"warning      {warning}")
    return Trained(bundle, result, scores, folder, warnings, beside)


def require_score(name: str, known: Mapping[str, float]) -> None:
    """Before training, rather than at its first evaluation."""
    varying = [each for each in known if each not in CONSTANTS]
    names = f"known: {', '.join(varying)}"
    if name not in known:
        hint = did_you_mean(name, varying, otherwise=names)
        raise ConfigError(f"score {name!r} is not one that the task evaluates; {hint}")
    if name in CONSTANTS:
        raise ConfigError(f"score {name!r} depends on the data alone, so no weights are better by it; {names}")


def kept_score(task: Task, settings: Settings) -> tuple[str, bool]:
    """The name of the score that the best weights are kept by, and whether higher is better."""
    if settings.score:
        return settings.score, is_better_higher(settings.score)
    return task.metric, is_better_higher(task.metric)


def own_job(path: str) -> Any:
    """The function that trains for a task in place of the loop."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(f"headway.{module}"), name)


def started_again(folder: Path) -> bool:
    """Whether torchrun has started this process anew after another one's death, and a run is there to go on with."""
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0" and is_present(run_file(folder, PLAN))


def learner(plan: Plan, bundle: Bundle, say: Say) -> torch.nn.Module:
    """The bundle's model as the loop is given it: adapters added, parts frozen."""
    for parameter in bundle.model.parameters():
        parameter.data = parameter.data.contiguous()
    trainable = prepare_parameters(bundle.model, lora=plan.lora, frozen=plan.freeze)
    if plan.freeze:
        say(str(trainable))
    return bundle.model


class _OnStart(Callback):
    """Saves the plan once the state is restored, since its length may have changed; says what the loop notes."""

    def __init__(self, folder: Path, plan: Plan, say: Say) -> None:
        self.folder, self.plan, self.say = folder, plan, say

    def on_start(self, status: Status) -> None:
        save_json(run_file(self.folder, PLAN), asdict(self.plan))

    def on_note(self, status: Status, message: str) -> None:
        self.say(message)


def _silent(text: str) -> None:
    pass


def progress(plan: Plan, *, stderr: bool = False) -> ProgressLine:
    """It shows the score that the user named, or the task's metric."""
    metric: Any = tasks.find(plan.task).variant(plan.options).metric  # a property where it depends on the data
    score = named_score(vars(plan)) or (metric if isinstance(metric, str) else None)
    return ProgressLine(unit=plan.train["batch_unit"], score=score, stderr=stderr)
