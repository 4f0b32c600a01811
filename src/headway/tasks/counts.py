"""Scores as functions of sums over examples, so that examples can be drawn again with replacement (bootstrap)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Counts:
    """What the score of one evaluation is computed from."""

    values: np.ndarray  # (example, count): their sums give the score
    lengths: np.ndarray  # (example,): words of the input
    kind: str  # of the score: a key of SCORES
    texts: list[str]  # the predictions, where they are texts

    def score(self, drawn: Iterable[np.ndarray] | None = None) -> np.ndarray:
        """(1,) of all examples, or (draw,) of each array of indices of examples."""
        rows = [self.values] if drawn is None else (self.values[row] for row in drawn)
        sums = np.stack([row.sum(0) for row in rows])  # (draw, count)
        return SCORES[self.kind](sums.astype(np.float64))


def bleu(sums: np.ndarray) -> np.ndarray:
    """sacreBLEU's formula, from matches and totals of one to four words, and both lengths."""
    found, total, length, reference = sums[:, :4], sums[:, 4:8], sums[:, 8], sums[:, 9]
    halvings = np.cumsum(found == 0, axis=1)  # smoothing "exp": the n-th order without a match counts 1/2ⁿ
    precision = np.where(found > 0, found, 0.5**halvings) / np.maximum(total, 1)
    known = (total > 0).all(1) & (found.sum(1) > 0)
    brevity = np.minimum(1.0, np.exp(1 - reference / np.maximum(length, 1)))
    return np.where(known, 100 * brevity * np.exp(np.log(np.maximum(precision, 1e-300)).mean(1)), 0.0)


def ratio(sums: np.ndarray) -> np.ndarray:
    return sums[:, 0] / np.maximum(sums[:, 1], 1)


SCORES = {
    "bleu": bleu,
    "f1": lambda sums: 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1),
    "accuracy": ratio,
    "mean": ratio,
    "loss": ratio,
    "mae": ratio,
    "wer": ratio,
    "bits_per_byte": ratio,
}


def word_lengths(inputs: Sequence[Any]) -> np.ndarray:
    """Words of each input."""
    return np.array([len(str(value).split()) for value in inputs])


def ngram_counts(found: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """(text, 10): what `bleu` takes of each text."""
    from sacrebleu.metrics.bleu import BLEU

    metric, out = BLEU(effective_order=True), []
    for text, wanted in zip(found, references, strict=True):
        one = metric.sentence_score(text, list(wanted))
        out.append([*one.counts, *one.totals, one.sys_len, one.ref_len])
    return np.array(out).reshape(-1, 10)


def by_length(counts: Sequence[Counts], *, bins: int = 4) -> list[tuple[str, float, int]]:
    """(lengths of the input, mean score over the evaluations, examples) for quarters of the examples, by length."""
    lengths = counts[0].lengths
    edges = np.unique(np.percentile(lengths, np.linspace(0, 100, bins + 1)).round().astype(int))
    out = []
    for low, high in pairwise(edges):
        last = high == edges[-1]
        chosen = np.nonzero((lengths >= low) & ((lengths <= high) if last else (lengths < high)))[0]
        if len(chosen):
            value = np.mean([one.score(chosen[None])[0] for one in counts])
            longest = high if last else high - 1
            out.append((f"{low}–{longest}" if longest > low else f"{low}", float(value), len(chosen)))
    return out
