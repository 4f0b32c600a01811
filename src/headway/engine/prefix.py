"""Prefix caching: keys and values of past requests are reused for prompts with the same prefix (idea: vLLM's and
SGLang's prefix caches, here for whole requests, least recently used first out).

Entries are copies, keyed by token ids and by the version of the weights, and are copied again when used: no request can
read or change the memory of another.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from headway.layers.cache import KeyValueCache

LIMIT = 256 * 2**20  # bytes
MIN_PREFIX = 8  # tokens; a shorter common prefix is not copied


@dataclass(frozen=True)
class PrefixEntry:
    weights: tuple[tuple[int, int], ...]
    ids: tuple[int, ...]
    layers: list[tuple[Tensor, Tensor]]  # keys and values, (1, kv_head, length, d)

    @property
    def nbytes(self) -> int:
        return sum(keys.nbytes + values.nbytes for keys, values in self.layers)


class PrefixCache:
    """Keys and values of past requests, at most `limit` bytes; the least recently used entry is evicted first."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._entries: list[PrefixEntry] = []  # least recently used first
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def restore(self, model: Any, ids: Sequence[int], cache: object) -> int:
        """Fills an empty cache with the longest known prefix of `ids` and returns its length. At least the last token
        is left, since its logits are needed."""
        if not isinstance(cache, KeyValueCache) or cache.memory is not None:
            return 0
        with self._lock:
            weights = weights_version(model)
            candidates = [entry for entry in self._entries if entry.weights == weights]
            best = max(candidates, key=lambda entry: common_prefix_length(entry.ids, ids), default=None)
            length = 0 if best is None else min(common_prefix_length(best.ids, ids), len(ids) - 1)
            if best is None or length < MIN_PREFIX:
                return 0
            self._entries.remove(best)
            self._entries.append(best)
        for layer, (keys, values) in zip(cache.layers, best.layers, strict=True):
            layer.append(keys[:, :, :length], values[:, :, :length])
        cache.advance([length])
        return length

    def store(self, model: Any, ids: Sequence[int], cache: object, row: int = 0) -> None:
        """Stores a copy of the first tokens of a row of a cache, which are `ids`."""
        if not isinstance(cache, KeyValueCache) or cache.memory is not None or cache.lengths[row] < len(ids):
            return
        part = slice(row, row + 1), slice(None), slice(len(ids))
        layers = [(layer.keys[part].clone(), layer.values[part].clone()) for layer in cache.layers]
        fresh = PrefixEntry(weights_version(model), tuple(ids), layers)
        if fresh.nbytes > self.limit:
            return
        with self._lock:
            self._entries = [entry for entry in self._entries if not _is_prefix(entry, fresh)]
            self._entries.append(fresh)
            while self.nbytes > self.limit:
                self._entries.pop(0)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()


def common_prefix_length(a: Sequence[int], b: Sequence[int]) -> int:
    """The length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def weights_version(model: Any) -> tuple[tuple[int, int], ...]:
    """Addresses and versions of all weights: changes when a weight is replaced or written to."""
    return tuple((weight.data_ptr(), weight._version) for weight in model.parameters())


def _is_prefix(entry: PrefixEntry, fresh: PrefixEntry) -> bool:
    return entry.weights == fresh.weights and entry.ids == fresh.ids[: len(entry.ids)]
