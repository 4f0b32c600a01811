"""What a baseline reached, and the part of the training data that it is fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
    """The items, or evenly spread ones of at most about `most` in total `size`, with a note that says so. The items are
    read once, and never more than twice as many are kept as are returned."""
    kept, total, step, count = list[tuple[int, Item]](), 0, 1, 0
    for number, item in enumerate(items):
        count += 1
        if number % step:
            continue
        kept.append((size(item), item))
        total += kept[-1][0]
        while total > 2 * most and len(kept) > 1:
            kept, step = kept[::2], 2 * step
            total = sum(each for each, _ in kept)
    if total > most and len(kept) > 1:
        every = -(-total // most)
        kept = kept[::every]
    note = "" if len(kept) == count else f"on {len(kept):,} of {count:,} {what}"
    return [item for _, item in kept], note
