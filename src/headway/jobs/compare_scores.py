"""Scores of several models on the same held-out examples, with their uncertainty: a score is computed from sums over
examples, so examples (and seeds) can be drawn again with replacement (paired bootstrap, Koehn 2004)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from headway.kinds.predictions import LOWER_IS_BETTER
from headway.tasks.counts import Counts

DRAWS = 1000
CERTAIN = 0.975  # share of draws in which one model is better


@dataclass(frozen=True)
class Standing:
    """The score of one model over its seeds."""

    name: str
    score: float
    low: float  # 95% interval
    high: float
    seeds: list[float]


def standings(runs: dict[str, list[Counts]], *, seed: int = 0) -> tuple[list[Standing], str]:
    """The models, best first, and what can be said of the best."""
    names, first = list(runs), next(iter(runs.values()))[0]
    sign = -1.0 if first.kind in LOWER_IS_BETTER else 1.0
    random = np.random.default_rng(seed)
    drawn = random.integers(0, len(first.values), (DRAWS, len(first.values)))
    scores = {}  # name → (draw,): the same examples for every model, a seed drawn anew for each
    for name, counts in runs.items():
        each = np.stack([one.score(drawn) for one in counts])  # (seed, draw)
        picked = random.integers(0, len(each), (len(each), DRAWS))
        scores[name] = np.take_along_axis(each, picked, axis=0).mean(0)
    out = []
    for name in names:
        own = [float(one.score()[0]) for one in runs[name]]
        low, high = np.percentile(scores[name], [2.5, 97.5])
        out.append(Standing(name, float(np.mean(own)), float(low), float(high), own))
    out.sort(key=lambda one: -sign * one.score)
    best = out[0]
    close = [one.name for one in out[1:] if (sign * (scores[best.name] - scores[one.name]) > 0).mean() < CERTAIN]
    if len(out) == 1:
        return out, f"{best.name} was compared with no other model."
    if close:
        return out, f"No clear winner: {best.name} has the best score, but {' and '.join(close)} may be as good."
    return out, f"{best.name} is better than every other model here in at least {CERTAIN:.1%} of the draws."


@dataclass(frozen=True)
class Difference:
    """The second of two evaluations of the same examples, minus the first."""

    first: float
    second: float
    low: float  # 95% interval of the difference
    high: float
    p: float  # share of the draws in which the difference has the other sign or is 0, times two (two-sided)
    lower_is_better: bool

    @property
    def value(self) -> float:
        return self.second - self.first

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0

    @property
    def second_is_better(self) -> bool:
        return (self.value < 0) == self.lower_is_better


def difference(first: Counts, second: Counts, *, seed: int = 0) -> Difference:
    """Paired bootstrap: the same examples are drawn for both. The same seed gives the same draws."""
    if first.kind != second.kind or len(first.values) != len(second.values):
        raise ValueError("the evaluations are not of the same examples by the same score")
    size = len(first.values)

    def drawn() -> Iterator[np.ndarray]:  # one draw at a time: all of them may not fit into memory
        random = np.random.default_rng(seed)
        return (random.integers(0, size, size) for _ in range(DRAWS))

    found = second.score(drawn()) - first.score(drawn())  # (draw,)
    low, high = np.percentile(found, [2.5, 97.5])
    p = min(1.0, 2 * min(float((found <= 0).mean()), float((found >= 0).mean())))
    one, other = float(first.score()[0]), float(second.score()[0])
    return Difference(one, other, float(low), float(high), max(p, 1 / DRAWS), first.kind in LOWER_IS_BETTER)
