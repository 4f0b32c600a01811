"""The length of a run and the intervals between evaluations and saves, in steps, epochs or time."""

from __future__ import annotations

import math

from headway.training.protocols import Status
from headway.training.settings import Every, Settings, interval

SAVE_TIME_SHARE = 0.03  # upper bound on the share of time spent saving when save_every is a time
EVALUATION_TIME_SHARE = 0.1  # the same of evaluating, when eval_every is a time


class Intervals:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.marks = {"eval_every": 0.0, "save_every": 0.0}  # elapsed seconds when each was last done
        self.longest_save = 0.0  # seconds
        self.longest_evaluation = 0.0  # seconds, with the step after it
        self.just_evaluated = False

    def planned_steps(self, status: Status, batches: int) -> int:
        """Total steps of the run, if every epoch has as many `batches` as this one."""
        settings = self.settings
        if settings.steps:
            return settings.steps
        if settings.epochs:
            return status.step + max(settings.epochs - status.epoch, 0) * batches - status.position
        progress = max(status.elapsed / (settings.minutes * 60), 1e-6)
        return max(status.step + 1, math.ceil(max(status.step, 1) / progress))

    def stop_reason(self, status: Status) -> str | None:
        """The setting that ends the run now, or None."""
        settings = self.settings
        if settings.patience and status.unimproved >= settings.patience:
            return "patience"
        if settings.steps and status.step >= settings.steps:
            return "steps"
        if settings.epochs and status.epoch >= settings.epochs:
            return "epochs"
        if settings.minutes and status.elapsed >= settings.minutes * 60:
            return "minutes"
        return None

    def due(self, name: str, status: Status) -> bool:
        """Whether the interval of the setting `name` has passed."""
        every: Every = getattr(self.settings, name)
        unit, size = interval(name, every)
        if unit == "seconds":
            passed = status.elapsed - self.marks[name]
            if name == "save_every":
                return passed >= max(size, self.longest_save / SAVE_TIME_SHARE)
            if self.just_evaluated:
                self.longest_evaluation, self.just_evaluated = max(passed, self.longest_evaluation), False
            return passed >= max(size, self.longest_evaluation / EVALUATION_TIME_SHARE)
        if unit == "epoch":
            return status.position == 0 and status.step > 0
        return size > 0 and status.step > 0 and status.step % size == 0

    def mark_done(self, name: str, status: Status) -> None:
        self.marks[name] = status.elapsed
        self.just_evaluated = self.just_evaluated or name == "eval_every"

    def record_save(self, status: Status, seconds: float) -> str | None:
        """Record the duration of a save. Returns a warning if saves take too long for the interval."""
        self.mark_done("save_every", status)
        unit, size = interval("save_every", self.settings.save_every)
        longer = seconds > self.longest_save
        self.longest_save = max(seconds, self.longest_save)
        if unit != "seconds" or not longer or seconds <= size * SAVE_TIME_SHARE:
            return None
        return (
            f"a save takes {seconds:.1f} s: states are {seconds / SAVE_TIME_SHARE:.0f} s apart, "
            f"to cost no more than {SAVE_TIME_SHARE:.0%}"
        )

    def reset(self, status: Status) -> None:
        self.marks = dict.fromkeys(self.marks, status.elapsed)
