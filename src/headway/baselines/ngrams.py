"""An n-gram language model with interpolated Kneser-Ney smoothing (Kneser & Ney 1995; Chen & Goodman 1999) over token
ids. Counts are sorted arrays: a text of a million tokens takes about a second."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class NgramCounts:
    """How often each key occurs; 0 for others."""

    keys: np.ndarray  # sorted
    values: np.ndarray

    @classmethod
    def of(cls, keys: np.ndarray, weights: np.ndarray | None = None) -> NgramCounts:
        found, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
        return cls(found, counts if weights is None else np.bincount(inverse, weights, minlength=len(found)))

    def __call__(self, keys: np.ndarray) -> np.ndarray:
        if not len(self.keys):
            return np.zeros(len(keys))
        places = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        return np.where(self.keys[places] == keys, self.values[places], 0).astype(np.float64)


@dataclass(frozen=True)
class Level:
    """The n-grams of one order: their (continuation) counts, and of each history the sum of them and their number."""

    grams: NgramCounts
    totals: NgramCounts
    kinds: NgramCounts
    discount: float


class NgramModel:
    """`order` is the length of the longest n-gram."""

    def __init__(self, ids: np.ndarray, *, vocab: int, order: int = 5) -> None:
        self.vocab, self.order = vocab, min(order, max(1, len(ids)))
        self.levels = [self._level(ids, size) for size in range(1, self.order + 1)]

    def _level(self, ids: np.ndarray, size: int) -> Level:
        keys = hashed(ids, size)
        if size == self.order:
            grams = NgramCounts.of(keys)
            _, place = np.unique(keys, return_index=True)
        else:  # in how many contexts an n-gram occurs: of the n-grams that are one longer, each counts once
            _, place = np.unique(hashed(ids, size + 1), return_index=True)
            grams = NgramCounts.of(hashed(ids, size)[1:][place])
            _, place = np.unique(hashed(ids, size)[1:], return_index=True)
            place = place + 1
        histories = hashed(ids[:-1], size - 1) if size > 1 else np.zeros(len(ids), np.uint64)
        own = histories[place]
        values = grams(keys[place])
        once, twice = int((values == 1).sum()), int((values == 2).sum())
        discount = once / (once + 2 * twice) if once and twice else 0.5
        seen = values > 0
        return Level(grams, NgramCounts.of(own[seen], values[seen]), NgramCounts.of(own[seen]), discount)

    def losses(self, ids: np.ndarray) -> np.ndarray:
        """Nats of every token but the first, each given up to `order` - 1 tokens before it."""
        probability = np.full(len(ids), 1 / self.vocab)
        for size, level in enumerate(self.levels, 1):
            at = np.arange(size - 1, len(ids))  # tokens that have a history of this length
            if not len(at):
                break
            keys = hashed(ids, size)
            history = hashed(ids[:-1], size - 1) if size > 1 else np.zeros(len(ids), np.uint64)
            count, total, kinds = level.grams(keys), level.totals(history), level.kinds(history)
            known = total > 0
            total = np.where(known, total, 1.0)
            mixed = np.maximum(count - level.discount, 0) / total + level.discount * kinds / total * probability[at]
            probability[at] = np.where(known, mixed, probability[at])
        return -np.log(probability[1:])


def hashed(ids: np.ndarray, size: int) -> np.ndarray:
    """A key for each run of `size` tokens, (len(ids) - size + 1,)."""
    count = len(ids) - size + 1
    if count < 1:
        return np.zeros(0, np.uint64)
    key = np.full(count, size, np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(size):
            key = (key ^ ids[offset : offset + count].astype(np.uint64)) * MULTIPLIER
            key ^= key >> np.uint64(29)
    return key
