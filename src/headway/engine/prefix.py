"""Prompts that begin alike are read once: keys and values of past requests, kept for the next one (idea:
vLLM's and SGLang's prefix caches, here for whole requests, newest first).

What is kept is a copy, found by its exact ids and by the exact weights that made it, and copied again when it is used:
no request can see or change another's memory, and one that shares nothing gets nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.layers.cache import KeyValueCache

LIMIT = 256 * 2**20  # bytes
LEAST = 8  # tokens alike that are worth a copy


@dataclass(frozen=True)
class Kept:
    weights: tuple[tuple[int, int], ...]
    ids: tuple[int, ...]
    layers: list[tuple[Tensor, Tensor]]  # keys and values, (1, kv_head, length, d)

    @property
    def nbytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


class PrefixCache:
    """The beginnings of past requests, at most `limit` bytes; what was not used for longest goes first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._kept: list[Kept] = []  # the one used last is last
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return sum(kept.nbytes for kept in self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def recall(self, model: Any, ids: Sequence[int], cache: object) -> int:
        """Fills an empty cache with what is known of the beginning of `ids`, and says how many of them. At least one
        is left to be read, since its scores are wanted."""
        if not isinstance(cache, KeyValueCache) or cache.memory is not None:
            return 0
        with self._lock:
            weights = stamp(model)
            known = [kept for kept in self._kept if kept.weights == weights]
            best = max(known, key=lambda kept: common(kept.ids, ids), default=None)
            length = 0 if best is None else min(common(best.ids, ids), len(ids) - 1)
            if best is None or length < LEAST:
                return 0
            self._kept.remove(best)
            self._kept.append(best)
        for layer, (keys, values) in zip(cache.layers, best.layers, strict=True):
            layer.append(keys[:, :, :length], values[:, :, :length])
        return length

    def keep(self, model: Any, ids: Sequence[int], cache: object) -> None:
        """Remembers the request whose first row has read `ids`."""
        if not isinstance(cache, KeyValueCache) or cache.memory is not None or cache.length < len(ids):
            return
        fresh = Kept(
            stamp(model),
            tuple(ids),
            [tuple(t[:1, :, : len(ids)].clone() for t in (each.keys, each.values)) for each in cache.layers],  # type: ignore[misc]
        )
        if fresh.nbytes > self.limit:
            return
        with self._lock:
            self._kept = [kept for kept in self._kept if not _within(kept, fresh)]
            self._kept.append(fresh)
            while self.nbytes > self.limit:
                self._kept.pop(0)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many ids two requests begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def stamp(model: Any) -> tuple[tuple[int, int], ...]:
    """Changes when a weight is replaced or written to."""
    return tuple((weight.data_ptr(), weight._version) for weight in model.parameters())


def _within(kept: Kept, fresh: Kept) -> bool:
    return kept.weights == fresh.weights and kept.ids == fresh.ids[: len(kept.ids)]
