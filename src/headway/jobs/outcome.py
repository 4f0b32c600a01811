"""How good a finished run is: beside its scores those of baselines, and warnings where it has not learned: a loss that
diverged, a score not above a baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headway.baselines import Baseline
from headway.data.dataset import RowReader
from headway.data.row import Row
from headway.kinds.predictions import is_better_higher
from headway.tasks.task import Task
from headway.training.result import FitResult
from headway.training.settings import Settings

FAR_ABOVE, LEAST = 1.5, 0.2  # the last loss is this multiple of the first, and this much more


def trivial_baseline(task: Task, scores: Mapping[str, float]) -> list[Baseline]:
    """The prediction that ignores its input, where `scores` were found."""
    found = task.baseline(scores)
    return [] if found is None else [Baseline(found[0], {task.metric: found[1]}, trivial=True)]


def baselines(task: Task, scores: Mapping[str, float], *, train: RowReader, rows: Sequence[Row]) -> list[Baseline]:
    """The trivial one unless it scores 0, which says nothing, and the classic model, which is fitted now."""
    classic = task.classic_baseline(train, rows)
    trivial = [each for each in trivial_baseline(task, scores) if any(each.scores.values())]
    return [*trivial, *([classic] if classic is not None else [])]


def run_warnings(
    result: FitResult, scores: Mapping[str, float], *, task: Task, settings: Settings,
    beside: Sequence[Baseline] | None = None,
) -> list[str]:  # fmt: skip
    """A line for each way in which the run has failed to learn, with what to try; none for a healthy run. `beside` are
    baselines; the trivial one is always among those that are compared."""
    others = [each for each in beside or [] if not each.trivial]
    beside = [*trivial_baseline(task, scores), *others]
    shared = any(settings.score in each.scores for each in beside)  # a linear model has no loss to compare with
    name = settings.score if shared else task.metric
    higher = is_better_higher(name)
    return [*_diverged(result, settings), *_not_above(beside, result, scores, name=name, higher=higher)]


def _diverged(result: FitResult, settings: Settings) -> list[str]:
    first, last = result.first_loss, result.last_loss
    if first is None or last is None or last <= FAR_ABOVE * first + LEAST:
        return []
    rates = ("lr", "matrix_lr") if settings.optimizer == "muon" else ("lr",)
    lower = " ".join(f"--set {name}={getattr(settings, name) / 10:.3g}" for name in rates)
    return [
        f"the training loss diverged: {first:.4g} at the first step, {last:.4g} at the end. Train again with a lower "
        f"learning rate, such as {lower}, or with a longer warm-up"
    ]


def _not_above(
    beside: Sequence[Baseline], result: FitResult, scores: Mapping[str, float], *, name: str, higher: bool
) -> list[str]:
    """The best of the trivial baselines that the model is not better than by this score, and of the others that are
    better than the model."""
    value, sign = scores.get(name), 1 if higher else -1
    if value is None:
        return []

    def is_ahead(each: Baseline) -> bool:
        other = sign * each.scores[name]
        return not sign * value > other if each.trivial else other > sign * value

    ahead = [each for each in beside if name in each.scores and is_ahead(each)]
    if not ahead:
        return []
    best = max(ahead, key=lambda each: sign * each.scores[name])
    if value == best.scores[name] == (1.0 if higher else 0.0):
        return [
            f"{name} {value:.4g} cannot be better, but {best.name} reaches it too: these held-out examples do not show "
            "whether the model has learned anything. Hold out more, or others (--valid), and see `headway check`"
        ]
    first, last = result.first_loss, result.last_loss
    if not best.trivial:
        advice = (
            "It is fitted in seconds: give the model more time (--minutes) or more examples, start from a trained "
            "model (--start), or use the cheap one"
        )
    elif first is not None and last is not None and last < 0.8 * first:
        advice = (
            "The training loss fell, so the model has not learned what carries over to other examples: give more "
            "examples, start from a trained model (--start), or check that labels and inputs belong together"
        )
    else:
        advice = "Train longer, try another learning rate (lr), or look for mixed-up columns with `headway check`"
    return [f"{name} {value:.4g} is not better than {best.name} ({best.scores[name]:.4g}). {advice}"]
