"""Which examples form which batch: a pure function of the arguments, so that a resumed run finds any step again.

A batch here is the *effective* batch. Ranks and gradient accumulation split it further; their number changes no batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from headway.data.length_batches import BatchLimits, cut
from headway.errors import ConfigError

POOL = 100  # batches in a pool of examples that is sorted by length


class BatchSampler:
    """Batches of example indices; every example once an epoch.

    With `bucket`, a shuffled epoch is cut into pools, each pool is sorted by length and cut into batches, and the
    batches are shuffled: examples of similar length share a batch, and every epoch differs. `unit` says what `batch`
    counts: examples, or tokens of the padded batch (examples times the longest one).
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
        """The batches of an epoch, each an array of example indices."""
        count = len(self.lengths)
        indices = permutation(count, self.seed, number, 0) if self.shuffle else np.arange(count)
        pool = self._pool() if self.bucket else max(1, count)
        batches: list[np.ndarray] = []
        for start in range(0, count, pool):
            part = indices[start : start + pool]
            if self.bucket:
                part = part[np.argsort(self.lengths[part], kind="stable")]
            batches += self._cut(part)
        if self.shuffle and self.bucket:
            batches = [batches[index] for index in permutation(len(batches), self.seed, number, 1)]
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
        limits = BatchLimits(rows=self.batch) if self.unit == "examples" else BatchLimits(padded_tokens=self.batch)
        return [part[span] for span in cut(np.maximum(self.lengths[part], 1).tolist(), limits)]


def permutation(count: int, *key: int) -> np.ndarray:
    """A permutation that depends on the key only. It sorts raw bits, whose stream numpy guarantees not to change."""
    bits = np.random.PCG64(np.random.SeedSequence(key)).random_raw(count)
    return np.argsort(bits, kind="stable")
