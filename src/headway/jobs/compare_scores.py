"""Scores of several models on the same held-out examples, with their uncertainty: a score is computed from sums over
examples, so examples (and seeds) can be drawn again with replacement (paired bootstrap, Koehn 2004)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from headway.data.row import Row
from headway.models.protocol import Model
from headway.tasks.entities import entities
from headway.tasks.generate import Generate
from headway.tasks.task import Task

DRAWS = 1000
CERTAIN = 0.975  # share of draws in which one model is better
PIECES = 100  # of the held-out text of a language model


@dataclass(frozen=True)
class Counts:
    """What the score of one run is computed from."""

    values: np.ndarray  # (example, count): their sums give the score
    lengths: np.ndarray  # (example,): words of the input
    kind: str  # of the score: bleu, f1, accuracy, loss
    texts: list[str]  # the predictions, where they are texts

    def score(self, drawn: np.ndarray | None = None) -> np.ndarray:
        """Of all examples, or (draw,) of each row of indices (draw, example)."""
        sums = self.values.sum(0)[None] if drawn is None else self.values[drawn].sum(1)  # (draw, count)
        return SCORES[self.kind](sums.astype(np.float64))


def bleu(sums: np.ndarray) -> np.ndarray:
    """sacreBLEU's formula, from matches and totals of one to four words, and both lengths."""
    found, total, length, reference = sums[:, :4], sums[:, 4:8], sums[:, 8], sums[:, 9]
    halvings = np.cumsum(found == 0, axis=1)  # smoothing "exp": the n-th order without a match counts 1/2ⁿ
    precision = np.where(found > 0, found, 0.5**halvings) / np.maximum(total, 1)
    known = (total > 0).all(1) & (found.sum(1) > 0)
    brevity = np.minimum(1.0, np.exp(1 - reference / np.maximum(length, 1)))
    return np.where(known, 100 * brevity * np.exp(np.log(np.maximum(precision, 1e-300)).mean(1)), 0.0)


SCORES = {
    "bleu": bleu,
    "f1": lambda sums: 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1),
    "accuracy": lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1),
    "loss": lambda sums: sums[:, 0] / np.maximum(sums[:, 1], 1),
}
LOWER_IS_BETTER = ("loss",)


def count(task: Task, model: Model, rows: Sequence[Row]) -> Counts:
    """The counts of one run on held-out rows."""
    if isinstance(task, Generate):
        return _pieces(task, model, rows)
    inputs = [task.model_input(row) for row in rows]
    found = task.predict(model, inputs, **({"beams": 1} if task.generates else {}))
    if task.name == "classify":
        right = [[one["label"] == row.fields["label"], 1] for one, row in zip(found, rows, strict=True)]
        return Counts(np.array(right), _lengths(inputs), "accuracy", [])
    if task.name == "tag":
        pairs = [
            (set(entities(one["tags"])), set(entities(row.fields["tags"])))
            for one, row in zip(found, rows, strict=True)
        ]
        values = [[len(own & wanted), len(own), len(wanted)] for own, wanted in pairs]
        return Counts(np.array(values), _lengths([" ".join(row.fields["words"]) for row in rows]), "f1", [])
    return Counts(_ngrams(found, rows), _lengths(inputs), "bleu", found)


def _ngrams(found: Sequence[str], rows: Sequence[Row]) -> np.ndarray:
    from sacrebleu.metrics import BLEU

    metric, out = BLEU(effective_order=True), []
    for text, row in zip(found, rows, strict=True):
        one = metric.sentence_score(text, row.fields.get("targets") or [row.fields["target"]])
        out.append([*one.counts, *one.totals, one.sys_len, one.ref_len])
    return np.array(out)


def _pieces(task: Generate, model: Model, rows: Sequence[Row]) -> Counts:
    ids = [i for row in rows for i in task.ids_of(row)]
    size = max(task.context + 1, -(-len(ids) // PIECES))
    pieces = [ids[at : at + size] for at in range(0, len(ids) - 1, size)]
    values = [task.text_loss(model, piece, rows=1) for piece in pieces if len(piece) > 1]
    return Counts(np.array(values), np.full(len(values), size), "loss", [])


def _lengths(inputs: Sequence[Any]) -> np.ndarray:
    return np.array([len(str(value).split()) for value in inputs])


@dataclass(frozen=True)
class Standing:
    """The score of one model over its seeds."""

    name: str
    score: float
    low: float  # 95% interval
    high: float
    seeds: list[float]


def standings(runs: dict[str, list[Counts]], *, seed: int = 0) -> tuple[list[Standing], str]:
    """The models, best first, and what can be said of the best."""
    names, first = list(runs), next(iter(runs.values()))[0]
    sign = -1.0 if first.kind in LOWER_IS_BETTER else 1.0
    random = np.random.default_rng(seed)
    drawn = random.integers(0, len(first.values), (DRAWS, len(first.values)))
    scores = {}  # name → (draw,): the same examples for every model, a seed drawn anew for each
    for name, counts in runs.items():
        each = np.stack([one.score(drawn) for one in counts])  # (seed, draw)
        picked = random.integers(0, len(each), (len(each), DRAWS))
        scores[name] = np.take_along_axis(each, picked, axis=0).mean(0)
    out = []
    for name in names:
        own = [float(one.score()[0]) for one in runs[name]]
        low, high = np.percentile(scores[name], [2.5, 97.5])
        out.append(Standing(name, float(np.mean(own)), float(low), float(high), own))
    out.sort(key=lambda one: -sign * one.score)
    best = out[0]
    close = [one.name for one in out[1:] if (sign * (scores[best.name] - scores[one.name]) > 0).mean() < CERTAIN]
    if len(out) == 1:
        return out, f"{best.name} was compared with no other model."
    if close:
        return out, f"No clear winner: {best.name} has the best score, but {' and '.join(close)} may be as good."
    return out, f"{best.name} is better than every other model here in at least {CERTAIN:.1%} of the draws."


def by_length(counts: Sequence[Counts], *, bins: int = 4) -> list[tuple[str, float, int]]:
    """(lengths of the input, mean score over the seeds, examples) for quarters of the examples, by length."""
    lengths = counts[0].lengths
    edges = np.unique(np.percentile(lengths, np.linspace(0, 100, bins + 1)).round().astype(int))
    out = []
    for low, high in pairwise(edges):
        last = high == edges[-1]
        chosen = np.nonzero((lengths >= low) & ((lengths <= high) if last else (lengths < high)))[0]
        if len(chosen):
            value = np.mean([one.score(chosen[None])[0] for one in counts])
            out.append((f"{low}–{high if last else high - 1}", float(value), len(chosen)))
    return out
