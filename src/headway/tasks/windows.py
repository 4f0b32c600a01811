"""A row of words too long for a model, as windows that overlap: every word is asked about once, in the
window where it stands farther from the edge."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple


class Window(NamedTuple):
    shown: range  # words the model reads
    asked: range  # words whose answer counts


def windows(sizes: Sequence[int], room: int) -> list[Window]:
    """`sizes` are the words' lengths in tokens, none larger than `room`; neighbours share about half a window."""
    ends = [0, *accumulate(sizes)]  # tokens before each word, and in all
    shown = []
    start = end = 0
    while end < len(sizes):
        end = bisect_right(ends, ends[start] + room) - 1
        shown.append(range(start, end))
        start = bisect_left(ends, ends[end] - room // 2, start + 1)
    cuts = [0, *((left.stop + right.start) // 2 for left, right in pairwise(shown)), len(sizes)]
    return [Window(words, range(*cut)) for words, cut in zip(shown, pairwise(cuts), strict=True)]
