"""Subword regularisation: in training, a token is now and then split into the two that BPE merged it from, so that a
model learns how words are spelt, and rare ones from more than their own token. As BPE-dropout (Provilkov et al. 2020),
but from the finished ids, and repeated by a seed."""

from __future__ import annotations

import numpy as np

from headway.preprocess.text import Tokenizer

DEPTH = 3  # how often the halves are split again


class SubwordSplitter:
    def __init__(self, tokenizer: Tokenizer) -> None:
        self.halves = np.full((len(tokenizer), 2), -1, dtype=np.int32)  # of each token; -1: it was not merged
        for token, pair in tokenizer.merged_from().items():
            self.halves[token] = pair

    def split(self, ids: np.ndarray, *, share: float, rng: np.random.Generator) -> np.ndarray:
        """With this share of the tokens split, and the same share of the halves again."""
        fresh = np.ones(len(ids), dtype=bool)  # not yet drawn for
        for _ in range(DEPTH):
            chosen = fresh & (rng.random(len(ids)) < share) & (self.halves[ids, 0] >= 0)
            if not chosen.any():
                break
            last = np.cumsum(1 + chosen)[chosen] - 1  # places of the second halves in the result
            halves = self.halves[ids[chosen]]
            ids, fresh = np.repeat(ids, 1 + chosen), np.repeat(chosen, 1 + chosen)
            ids[last - 1], ids[last] = halves[:, 0], halves[:, 1]
        return ids
