"""Batches of sequences of similar length: sorted by length, then cut so that each batch stays within its limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class BatchLimits:
    """Of one batch; None: no limit."""

    rows: int | None = None
    tokens: int | None = None  # sum of the lengths
    padded_tokens: int | None = None  # rows times the longest
    padding: float | None = None  # padding, as a share of the tokens

    def allow(self, rows: int, tokens: int, longest: int) -> bool:
        return (
            (self.rows is None or rows <= self.rows)
            and (self.tokens is None or tokens <= self.tokens)
            and (self.padded_tokens is None or rows * longest <= self.padded_tokens)
            and (self.padding is None or rows * longest <= (1 + self.padding) * tokens)
        )


def by_length(lengths: Sequence[int], limits: BatchLimits, *, longest_first: bool = False) -> list[list[int]]:
    """Batches of indices, the shortest sequences first; equal lengths keep their order."""
    sign = -1 if longest_first else 1
    order = sorted(range(len(lengths)), key=lambda index: sign * lengths[index])
    return [order[span] for span in cut([lengths[index] for index in order], limits)]


def cut(lengths: Sequence[int], limits: BatchLimits) -> Iterator[slice]:
    """Consecutive sequences as batches within the limits, or of one sequence that exceeds them alone."""
    start = tokens = longest = 0
    for index, length in enumerate(lengths):
        tokens, longest = tokens + length, max(longest, length)
        if index > start and not limits.allow(index + 1 - start, tokens, longest):
            yield slice(start, index)
            start, tokens, longest = index, length, length
    if len(lengths):
        yield slice(start, len(lengths))
