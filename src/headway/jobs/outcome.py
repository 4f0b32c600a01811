"""What a finished run says about itself if it has not learned: a loss that diverged, a score not above the baseline."""

from __future__ import annotations

from collections.abc import Mapping

from headway.tasks.task import Task
from headway.training.result import FitResult
from headway.training.settings import Settings

FAR_ABOVE, LEAST = 1.5, 0.2  # the last loss is this multiple of the first, and this much more


def run_warnings(result: FitResult, scores: Mapping[str, float], *, task: Task, settings: Settings) -> list[str]:
    """A line for each way in which the run has failed to learn, with what to try; none for a healthy run."""
    return [*_diverged(result, settings), *_not_above_baseline(result, scores, task=task)]


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


def _not_above_baseline(result: FitResult, scores: Mapping[str, float], *, task: Task) -> list[str]:
    baseline, value = task.baseline(scores), scores.get(task.metric)
    if baseline is None or value is None:
        return []
    name, trivial = baseline
    if value > trivial if task.higher_is_better else value < trivial:
        return []
    first, last = result.first_loss, result.last_loss
    if first is not None and last is not None and last < 0.8 * first:
        advice = (
            "The training loss fell, so the model has not learned what carries over to other examples: give more "
            "examples, start from a trained model (--start), or check that labels and inputs belong together"
        )
    else:
        advice = "Train longer, try another learning rate (lr), or look for mixed-up columns with `headway check`"
    return [f"{task.metric} {value:.4g} is not better than {name} ({trivial:.4g}). {advice}"]
