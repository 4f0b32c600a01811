"""What a run's budget is spent on: length limit, batch, learning rate, epochs and evaluations of a run on examples of
text, from the data and, where the budget is a time, from a few timed steps of the model itself.

A run needs some hundred updates to learn, however short it is, so a batch is only as large as leaves that many. With a
length in steps or epochs nothing depends on the clock, and a seed repeats the run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.bundle import Bundle
from headway.data.facts import Facts
from headway.data.row import Row
from headway.jobs.cost import SAMPLE, Estimator, Workload
from headway.jobs.run_config import Plan, with_choices
from headway.memory import return_freed_memory
from headway.tasks.language_settings import UPDATES
from headway.tasks.task import Choice, Example, Task
from headway.training.recipes import FINETUNED_WIDTH
from headway.training.settings import LENGTHS, Settings

COVERED = 99  # percentile of the lengths that the limit covers
LONGEST = 512  # tokens that the limit is raised to
SHORTEST = 128  # tokens that it is lowered to, where the time is short
LEAST_EPOCHS, SMALL_EPOCHS, LARGE_EPOCHS = 3, 20, 10  # of fine-tuning; the most for small and for larger data
SMALL = 1000  # examples
SHORT_RUN, SHORT_RATE = 300, 2.0  # updates of running text below which learning rates are higher, and how much
SCRATCH_UPDATES = 200  # of a language model from scratch: fewer of larger batches teach it more (dev/LOG.md)
EVALUATIONS = (4, 10)  # of a run with a time limit: at most one an epoch, within these bounds
APART = 10  # seconds between two of them at least
EVALUATION_SHARE = 0.025  # of the time, for one of them
EVALUATED = (64, 1000)  # held-out examples of one of them; BLEU of 500 varies by a point at equal loss
FORWARD = 1 / 3  # of the time of a training pass
REPEATED = 40  # epochs of a language model from scratch, at most: more add nothing (Muennighoff et al. 2023)
GENERATED = 2.5  # seconds of a run for each held-out example whose prediction is generated


@dataclass(frozen=True)
class Pace:
    """Seconds on this machine as it is now."""

    example: float  # of the passes over one example
    update: float

    def examples(self, seconds: float, batch: int) -> float:
        """That training sees in this time, in batches of this size."""
        return seconds * (1 - EVALUATIONS[0] * EVALUATION_SHARE) / (self.example + self.update / batch)


def fit_budget(plan: Plan, bundle: Bundle, facts: Facts, *, ranks: int = 1) -> Plan:
    """The plan, with what follows from its budget, except for what the user gave. Sets the limit of the task."""
    task = bundle.find_task()
    budgeted = task.budgeted or (task.timed and plan.settings().minutes)
    if not (plan.choose and budgeted) or task.uses_reference or plan.given is None:
        return plan
    rows, total = facts.some(SAMPLE), facts.count
    if not rows:
        return plan
    task.encode_ahead(rows)
    choice = _limit(plan, task, rows, most=bundle.model.max_length)
    plan = _applied(plan, task, choice)
    with task.count_truncation():
        examples = [example for row in rows for example in task.training_examples(row)]
    task.encode_ahead([])
    if not examples:
        return plan
    per_row = (task.example_count(examples) if task.stream else len(examples)) / len(rows)
    examples, count = task.sample(examples, SAMPLE) if task.stream else examples, max(1, round(total * per_row))
    pace = _pace(plan, task, bundle, examples, count=count, ranks=ranks) if plan.settings().minutes else None
    if pace is not None:
        shorter = _shorter(plan, task, examples, pace=pace, count=count)
        if shorter.settings:
            scale = _mean_length(task, examples, shorter.settings["task.limit"]) / _mean_length(task, examples)
            plan, pace = _applied(plan, task, shorter), Pace(pace.example * scale, pace.update)
    if plan.recipe == "finetune" or task.timed:
        plan = _applied(plan, task, _updates(plan, task, bundle, pace=pace, count=count))
    if pace is None:
        return plan
    return _applied(plan, task, _evaluations(plan, task, pace=pace, count=count, per_row=per_row))


def _applied(plan: Plan, task: Task, choice: Choice) -> Plan:
    if "task.limit" in choice.settings:
        task.limit = choice.settings["task.limit"]  # type: ignore[attr-defined]
    return with_choices(plan, choice)


def _limit(plan: Plan, task: Task, rows: Sequence[Row], *, most: int | None) -> Choice:
    """The length limit covers nearly all texts, as far as the model can read them."""
    limits = task.length_limits()
    if not _limited(plan, task):
        return Choice()
    lengths = [max(task.token_lengths(row)[part] for part in limits) for row in rows]
    covering = 16 * math.ceil(float(np.percentile(lengths, COVERED)) / 16)
    usual: int = task.limit  # type: ignore[attr-defined]
    limit = min(max(covering, usual), LONGEST, most or LONGEST)  # an input may be longer than the training texts
    if limit <= usual:
        return Choice()
    covered = sum(length <= limit for length in lengths) / len(lengths)
    return Choice({"task.limit": limit}, {"limit": f"{limit} tokens, which cover {covered:.1%} of the texts"})


def _limited(plan: Plan, task: Task) -> bool:
    """Whether longer texts are cut, at a limit that may be chosen."""
    return getattr(task, "limit", None) in task.length_limits().values() and "task.limit" not in plan.fixed


def _pace(plan: Plan, task: Task, bundle: Bundle, examples: Sequence[Example], *, count: int, ranks: int) -> Pace:
    work = Workload(examples[:SAMPLE], examples[:1], count)
    step = Estimator(plan, task, bundle.model, work).step_time()
    return_freed_memory()  # of the model's copy
    per_example = step.passes / plan.settings().batch / ranks
    return Pace(per_example * step.slowdown, step.update * step.slowdown)


def _mean_length(task: Task, examples: Sequence[Example], limit: int | None = None) -> float:
    return float(np.mean([min(task.length(example), limit or task.length(example)) for example in examples]))


def _shorter(plan: Plan, task: Task, examples: Sequence[Example], *, pace: Pace, count: int) -> Choice:
    """Where the time does not suffice for one epoch of long texts, a lower limit, if there is one to choose: the start
    of every text says more than the whole of some."""
    longest, settings = max(task.length(example) for example in examples), plan.settings()
    seen = pace.examples(settings.minutes * 60, settings.batch)
    if not _limited(plan, task) or longest <= SHORTEST or seen >= count:
        return Choice()
    wanted = _mean_length(task, examples) * seen / count
    fitting = [each for each in range(SHORTEST, longest, 16) if _mean_length(task, examples, each) <= wanted]
    chosen = fitting[-1] if fitting else SHORTEST
    cut = sum(task.length(example) > chosen for example in examples) / len(examples)
    return Choice(
        {"task.limit": chosen},
        {"limit": f"{chosen} tokens: the time does not suffice for the whole of all texts; {cut:.0%} are cut"},
    )


def _updates(plan: Plan, task: Task, bundle: Bundle, *, pace: Pace | None, count: int) -> Choice:
    """Batch, learning rates and, unless a length is given, epochs."""
    settings, given, tuned = plan.settings(), plan.fixed, plan.recipe == "finetune"
    most = REPEATED if not tuned else SMALL_EPOCHS if count < SMALL else LARGE_EPOCHS
    usual = task.train_defaults(plan.recipe).get("batch", Settings.batch)
    sizes = [usual]  # each half of the one before
    while sizes[-1] // 2 >= task.least_batch:
        sizes.append(sizes[-1] // 2)
    chosen: dict[str, Any] = {}
    if pace is not None:
        seen = pace.examples(settings.minutes * 60, sizes[0])
        if seen > most * count and "train.epochs" not in given:
            chosen, seen = {"train.epochs": most}, float(most * count)
    elif settings.steps:
        seen = math.inf if "train.batch" not in given else settings.steps * settings.batch
    else:
        epochs = settings.epochs
        if not given & {f"train.{name}" for name in LENGTHS}:
            epochs = min(SMALL_EPOCHS, max(LEAST_EPOCHS, math.ceil(UPDATES * sizes[-1] / count)))
            chosen = {"train.epochs": epochs}
        seen = float(epochs * count)
    batch = settings.batch
    if "train.batch" not in given and settings.batch_unit == "examples" and math.isfinite(seen):
        enough = UPDATES if tuned else SCRATCH_UPDATES
        batch = next((size for size in sizes if seen / size >= enough), sizes[-1])
        chosen["train.batch"] = batch
    why: dict[str, str] = {}
    short = task.stream and not tuned and seen / batch < SHORT_RUN
    scale = math.sqrt(batch / usual) * (SHORT_RATE if short else 1.0)
    if not tuned and scale != 1.0:
        chosen["train.matrix_lr"] = float(f"{settings.matrix_lr * scale:.2g}")
    if "train.lr" not in given and (tuned or scale != 1.0):
        rate = settings.lr * scale * (width_factor(bundle) if tuned else 1.0)
        chosen["train.lr"] = float(f"{rate:.2g}")
        other = " and a model of this width" if tuned else " and so few updates" if short else ""
        why["learning rate"] = f"{rate:.2g}, for batches of {batch}{other}"
    if math.isfinite(seen):
        epochs_seen = seen / count
        why = {
            "updates": f"about {max(1, int(seen / batch)):,} of {batch} {_unit(task)}, {epochs_seen:.2g} "
            f"epoch{'s' if epochs_seen >= 1.05 else ''}"
            + ("; more would repeat the data too often" if pace is not None and "train.epochs" in chosen else "")
        } | why
    return Choice(chosen, why)


def _unit(task: Task) -> str:
    return f"windows of {task.context} tokens" if task.stream else "examples"  # type: ignore[attr-defined]


def width_factor(bundle: Bundle) -> float:
    """The narrower a model, the higher its learning rate: in proportion to 1 / width (Yang et al. 2021), from the width
    that the recipe's learning rate is for."""
    table = bundle.model.token_table
    return 1.0 if table is None else min(4.0, max(0.25, FINETUNED_WIDTH / table.shape[1]))


def _evaluations(plan: Plan, task: Task, *, pace: Pace, count: int, per_row: float = 1.0) -> Choice:
    """Evaluations that take a small share of a run with a time limit. The cost of generating text is not known before;
    the loop keeps them further apart where they take long. `per_row`: training examples of a row, on average."""
    settings = plan.settings()
    if not settings.minutes or {"train.eval_every", "train.eval_rows"} & plan.fixed:
        return Choice()
    seconds = settings.minutes * 60
    epochs = pace.examples(seconds, settings.batch) / count
    times = max(1, int(min(max(epochs, EVALUATIONS[0]), EVALUATIONS[1], seconds / APART)))
    generated = task.prediction_kind.generates and not task.timed  # a language model is evaluated by its loss
    one = GENERATED if generated else pace.example * max(1.0, per_row) * FORWARD / EVALUATION_SHARE
    least = max(1, int(EVALUATED[0] / max(1.0, per_row)))  # rows of running text are long
    rows = int(min(max(seconds / one, least), EVALUATED[1]))
    every, parts = max(1, round(seconds / times)), "parts" if task.stream else "examples"
    return Choice(
        {"train.eval_every": f"{every}s", "train.eval_rows": rows},
        {"evaluated": f"every {every} s on up to {rows} held-out {parts}, at the end on all"},
    )
