"""Data room: which examples form which batch. Known from the arguments alone, so any step can be found again.

A batch here is the *effective* one: ranks and accumulation cut it further, so their number changes no batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from headway.errors import ConfigError

POOL = 100  # batches' worth of examples that are sorted by length together


class Order:
    """Batches of example indices; every example once an epoch.

    With `bucket`, a shuffled epoch is cut into pools, each pool sorted by length and cut into batches, and the batches
    shuffled: neighbours in length share a batch, yet no two epochs are alike. `unit` says what `batch` counts:
    examples, or tokens of the padded batch (rows times the longest row).
    """

    def __init__(
        self, lengths: np.ndarray, *, batch: int, unit: Literal["examples", "tokens"] = "examples", seed: int = 0,
        bucket: bool = True, shuffle: bool = True,
    ) -> None:  # fmt: skip
        if batch < 1:
            raise ConfigError(f"A batch of {batch} {unit} is empty; give at least 1.")
        self.lengths = np.asarray(lengths, dtype=np.int64)
        self.batch, self.unit, self.seed, self.bucket, self.shuffle = batch, unit, seed, bucket, shuffle
        if unit == "tokens" and len(self.lengths) and (longest := int(self.lengths.max())) > batch:
            raise ConfigError(
                f"Example {int(self.lengths.argmax())} has {longest:,} tokens, more than the batch budget of "
                f"{batch:,}; raise the budget or cut long examples."
            )

    def epoch(self, number: int) -> list[np.ndarray]:
        """The batches of an epoch, in order."""
        count = len(self.lengths)
        indices = shuffled(count, self.seed, number, 0) if self.shuffle else np.arange(count)
        pool = self._pool() if self.bucket else max(1, count)
        batches: list[np.ndarray] = []
        for start in range(0, count, pool):
            part = indices[start : start + pool]
            if self.bucket:
                part = part[np.argsort(self.lengths[part], kind="stable")]
            batches += self._cut(part)
        if self.shuffle and self.bucket:
            batches = [batches[index] for index in shuffled(len(batches), self.seed, number, 1)]
        return batches

    def padding_share(self, epoch: Sequence[np.ndarray]) -> float:
        """The share of padded positions over an epoch's batches."""
        padded = sum(len(batch) * int(self.lengths[batch].max()) for batch in epoch)
        return 1 - sum(int(self.lengths[batch].sum()) for batch in epoch) / padded if padded else 0.0

    def _pool(self) -> int:
        if self.unit == "examples":
            return POOL * self.batch
        return POOL * max(1, int(self.batch / max(1.0, float(self.lengths.mean())))) if len(self.lengths) else 1

    def _cut(self, part: np.ndarray) -> list[np.ndarray]:
        if self.unit == "examples":
            return [part[start : start + self.batch] for start in range(0, len(part), self.batch)]
        lengths, batches, start = np.maximum(self.lengths[part], 1), [], 0
        while start < len(part):
            ahead = np.maximum.accumulate(lengths[start : start + self.batch // int(lengths[start])])
            padded = ahead * np.arange(1, len(ahead) + 1)  # size of a batch that ends here; only grows
            end = start + int(np.searchsorted(padded, self.batch, side="right"))
            batches.append(part[start:end])
            start = end
        return batches


def shuffled(count: int, *key: int) -> np.ndarray:
    """A permutation that depends on the key alone: sorted raw bits, whose stream numpy promises to keep."""
    bits = np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
    return np.argsort(bits, kind="stable")
