"""How long a run is and how often it pauses to evaluate and to save, measured in steps, epochs or time."""

from __future__ import annotations

import math

from headway.training.protocols import Status
from headway.training.settings import Every, Settings, interval

SHARE = 0.03  # of the time that saving by the clock may take


class Pace:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.marks = {"eval_every": 0.0, "save_every": 0.0}  # the clock when each was last done
        self.cost = 0.0  # seconds the dearest save took

    def planned(self, status: Status, batches: int) -> int:
        """How many steps the run will have had at its end, if every epoch has as many `batches` as this one."""
        settings = self.settings
        if settings.steps:
            return settings.steps
        if settings.epochs:
            return status.step + max(settings.epochs - status.epoch, 0) * batches - status.position
        progress = max(status.elapsed / (settings.minutes * 60), 1e-6)
        return max(status.step + 1, math.ceil(max(status.step, 1) / progress))

    def ended(self, status: Status) -> str | None:
        """Why the run is over, if it is."""
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
        """Whether it is time for what the setting `name` says."""
        every: Every = getattr(self.settings, name)
        unit, size = interval(name, every)
        if unit == "seconds":
            apart = max(size, self.cost / SHARE) if name == "save_every" else size
            return status.elapsed - self.marks[name] >= apart
        if unit == "epoch":
            return status.position == 0 and status.step > 0
        return size > 0 and status.step > 0 and status.step % size == 0

    def done(self, name: str, status: Status) -> None:
        self.marks[name] = status.elapsed

    def saved(self, status: Status, cost: float) -> str | None:
        """A state was saved in `cost` seconds; what the user should know if that is too much for the interval."""
        self.done("save_every", status)
        unit, size = interval("save_every", self.settings.save_every)
        dearer = cost > self.cost
        self.cost = max(cost, self.cost)
        if unit != "seconds" or not dearer or cost <= size * SHARE:
            return None
        return f"a save takes {cost:.1f} s: states are {cost / SHARE:.0f} s apart, to cost no more than {SHARE:.0%}"

    def restart(self, status: Status) -> None:
        self.marks = dict.fromkeys(self.marks, status.elapsed)
