"""What a baseline reached, and the part of the training data that it is fitted to."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import itemgetter
from random import Random
from statistics import median
from typing import TypeVar

Item = TypeVar("Item")


@dataclass(frozen=True)
class Baseline:
    """A prediction that needs no trained network: what it is, in words, and its scores on the held-out rows, named as
    the scores of the task."""

    name: str
    scores: dict[str, float] = field(default_factory=dict)
    trivial: bool = False  # it ignores the input
    note: str = ""  # on what it was fitted or scored, if not on everything

    @property
    def title(self) -> str:
        return f"{self.name} ({self.note})" if self.note else self.name


def baseline_lines(found: Sequence[Baseline], scores: Mapping[str, float], *, metric: str) -> list[str]:
    """A line for each, with two of the scores that the model has too: the task's metric and the first other one."""
    names = sorted(scores, key=lambda name: name != metric)
    out = []
    for each in found:
        values = [f"{name} {each.scores[name]:.4g}" for name in names if name in each.scores]
        out.append(f"{', '.join(values[:2])}: {each.title}")
    return out


def thinned(
    items: Iterable[Item], size: Callable[[Item], int], *, most: int, what: str = "training examples"
) -> tuple[Sequence[Item], str]:
    """The items, or randomly drawn ones of at most about `most` in total `size`, in their order, with a note that says
    so; the same each time. The items are read once, and about twice as many are kept as are returned at most."""
    draws, limit, count = Random(0), 1.0, 0
    kept, total = list[tuple[float, int, Item]](), 0  # (draw, size, item); those below the limit
    for item in items:
        count += 1
        if (draw := draws.random()) >= limit:
            continue
        kept.append((draw, size(item), item))
        total += kept[-1][1]
        while total > 2 * most and len(kept) > 1:
            limit = median(draw for draw, _, _ in kept)
            kept = [each for each in kept if each[0] < limit]
            total = sum(each for _, each, _ in kept)
    if total > most:
        ends = list(accumulate(each for _, each, _ in sorted(kept, key=itemgetter(0))))
        last = sorted(draw for draw, _, _ in kept)[max(0, bisect(ends, most) - 1)]
        kept = [each for each in kept if each[0] <= last]
    note = "" if len(kept) == count else f"on {len(kept):,} of {count:,} {what}"
    return [item for _, _, item in kept], note
