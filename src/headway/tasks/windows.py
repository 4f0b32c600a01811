"""Overlapping windows over a sentence that is too long for a model. Every word is predicted in one window,
the one where it is farther from the edge."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple


class WordWindow(NamedTuple):
    words: range  # the model's input
    predicted: range  # words whose prediction counts


def windows(sizes: Sequence[int], limit: int) -> list[WordWindow]:
    """`sizes` are the words' lengths in tokens, none above `limit`. Neighbouring windows overlap by about half."""
    ends = [0, *accumulate(sizes)]  # tokens before each word, and the total
    inputs = []
    start = end = 0
    while end < len(sizes):
        end = bisect_right(ends, ends[start] + limit) - 1
        inputs.append(range(start, end))
        start = bisect_left(ends, ends[end] - limit // 2, start + 1)
    cuts = [0, *((left.stop + right.start) // 2 for left, right in pairwise(inputs)), len(sizes)]
    return [WordWindow(words, range(*cut)) for words, cut in zip(inputs, pairwise(cuts), strict=True)]
