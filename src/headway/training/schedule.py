"""Learning-rate schedules, as a pure function of the step: the factor of the peak learning rate.

Warm-up then `wsd` (stable, then a linear decay: Hu et al. 2024), `cosine` (Loshchilov & Hutter 2017), `linear`,
`inverse_sqrt` (Vaswani et al. 2017) or `constant`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

from headway.errors import ConfigError

POINTS = 1000  # steps at which `Schedule.continuation` looks
Kind = Literal["wsd", "cosine", "linear", "inverse_sqrt", "constant"]


@dataclass(frozen=True)
class Extension:
    """A run whose length was changed: the steps it had made by then, and the factor of the last of them."""

    step: int
    factor: float


@dataclass(frozen=True)
class Schedule:
    """`warmup` is a fraction of the run if below 1, otherwise a number of steps. `decay` is the fraction of the run in
    which `wsd` decays; `cosine` and `linear` decay from the end of the warm-up. They decay to `floor`, a fraction of
    the peak, which is also the minimum of `inverse_sqrt`. `constant` does not decay."""

    kind: Kind = "wsd"
    warmup: float = 0.0
    decay: float = 0.2
    floor: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise ConfigError(f"schedule: {self.kind!r} is not one of {', '.join(get_args(Kind))}")
        if not (math.isfinite(self.warmup) and self.warmup >= 0):
            raise ConfigError(f"warmup: {self.warmup!r}; a share of the run below 1, or a number of steps, is needed")
        for name in ("decay", "floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}: {getattr(self, name)!r}; a share between 0 and 1 is needed")

    def factor(self, step: float, steps: float, extension: Extension | None = None) -> float:
        """The factor of the update after `step` finished steps of `steps`; at `step == steps` it is `floor`.

        An extended run has the factor of a run planned for `steps`, which it reaches from its last factor by a linear
        warm-up: `warmup` steps, or that share of the steps after the extension.
        """
        planned = self._planned(step, steps)
        if extension is None:
            return planned
        warmup = self.warmup * (steps - extension.step) if self.warmup < 1 else self.warmup
        warming = min(1.0, (step - extension.step + 1) / warmup) if warmup else 1.0
        return min(planned, extension.factor + (1 - extension.factor) * warming)

    def continuation(self, steps: int, extension: Extension) -> str:
        """What the learning rate does after an extension to `steps`, in words."""
        every = max(1, (steps - extension.step) // POINTS)
        factors = {
            step: self.factor(step, steps, extension) for step in (*range(extension.step, steps, every), steps - 1)
        }
        highest = max(factors, key=lambda step: factors[step])
        first, top, last = extension.factor, factors[highest], factors[steps - 1]
        if top > 1.05 * first:
            fall = f", then falls to {last:.1%}" if last < top else ""
            return f"rises from {first:.1%} to {top:.1%} of its peak at step {highest + 1:,}{fall}"
        return (
            f"falls from {first:.1%} to {last:.1%} of its peak" if last < first else f"stays at {first:.1%} of its peak"
        )

    def _planned(self, step: float, steps: float) -> float:
        warmup = self.warmup * steps if self.warmup < 1 else self.warmup
        warming = min(1.0, (step + 1) / warmup) if warmup else 1.0
        return min(warming, self._decay_factor(step, steps, warmup))

    def _decay_factor(self, step: float, steps: float, warmup: float) -> float:
        if self.kind == "constant":
            return 1.0
        if self.kind == "inverse_sqrt":
            return max(self.floor, min(1.0, math.sqrt(max(1.0, warmup) / (step + 1))))
        start = max(warmup, steps * (1 - self.decay)) if self.kind == "wsd" else warmup
        start = min(start, steps - 1)  # a run shorter than its warm-up still ends at the floor
        left = min(1.0, max(0.0, (steps - step) / (steps - start)))  # 1 until the decay starts, 0 at the end
        if self.kind == "cosine":
            left = (1 - math.cos(math.pi * left)) / 2
        return self.floor + (1 - self.floor) * left
