"""Trainings without what takes longer than the few steps of a test: passes are timed for milliseconds, and no curves
are drawn. Used by all tests (conftest.py), and by the processes that some of them start."""

from collections.abc import Callable
from typing import Any

from headway.lineage import word2vec_fit
from headway.training import loop, step_trial


def shorten_trainings(replace: Callable[[Any, str, Any], None] = setattr) -> float:
    """Returns the seconds of a pass as users get them."""
    full = step_trial.PASS_SECONDS
    replace(step_trial, "PASS_SECONDS", full / 100)
    for module in (loop, word2vec_fit):
        replace(module, "draw_curves", lambda *_: None)
    return full
