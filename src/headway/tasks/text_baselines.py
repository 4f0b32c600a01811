"""Baselines of the tasks on text, from their rows: linear models of TF-IDF features, retrieval by TF-IDF, the most
frequent tag of a word, n-gram models."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from headway.baselines import Baseline, thinned
from headway.baselines.linear import fit
from headway.baselines.ngrams import NgramModel
from headway.baselines.tfidf import TextFeatures
from headway.data.read import Row
from headway.tasks.entities import entity_scores
from headway.tasks.targets import LabelSet, Number, Target, fitted_threshold

TEXT = 12_000_000  # characters of the training texts that are used, at most …
CHARACTERS = 1_500_000  # … and up to which n-grams of characters are features
WEIGHTS = 1_500_000  # of a linear model: with more labels it has fewer features
WORK = 4e7  # characters times labels: more of them are thinned out
STRENGTH = {"one": 0.1, "several": 0.1, "number": 1.0}  # of the L2 penalty
CLOSE = 1e-5  # to the optimum: beyond it an accuracy hardly changes
TOKENS = 2_000_000  # that an n-gram model counts
RETRIEVED = 4000  # pairs


def linear_baseline(
    target: Target, train: Iterable[Row], rows: Sequence[Row], *, text: Callable[[Row], str],
    judges: Callable[[Row], bool] = lambda row: True,
) -> Baseline:  # fmt: skip
    """Logistic or ridge regression of TF-IDF features. With several labels an example the threshold is fitted to the
    held-out rows that do not judge."""
    budget = min(TEXT, WORK / target.outputs * 10)
    kept, note = thinned(train, lambda row: len(text(row)), most=int(budget))
    texts = [text(row) for row in kept]
    features = TextFeatures(most=max(1000, WEIGHTS // target.outputs), characters=sum(map(len, texts)) <= CHARACTERS)
    inputs = features.fit(texts)
    judging = [row for row in rows if judges(row)] or list(rows)
    others = [row for row in rows if not judges(row)]
    wanted = [target.encode(row.fields["label"], where=row.where, strict=False) for row in kept]
    if isinstance(target, Number):
        values = (np.array([each[0] for each in wanted]) - target.scale.mean) / target.scale.std
        model, kind = (
            fit(inputs, values[:, None], kind="number", strength=STRENGTH["number"], tolerance=CLOSE),
            "ridge regression",
        )
        target = replace(target, standardised=True)
    elif isinstance(target, LabelSet):
        hot = target.collate(wanted).numpy().astype(np.float64)
        model, kind = (
            fit(inputs, hot, kind="several", strength=STRENGTH["several"], tolerance=CLOSE),
            "a logistic regression a label",
        )
        truth = target.collate(_labels(target, others)).numpy() if others else np.zeros((0, target.outputs))
        threshold = fitted_threshold(_sigmoid(model(_of(features, others, text))), truth) if truth.any() else 0.5
        target = replace(target, threshold=threshold)
    else:
        hot = np.eye(target.outputs)[[each[0] for each in wanted]]
        model, kind = fit(inputs, hot, kind="one", strength=STRENGTH["one"], tolerance=CLOSE), "logistic regression"
    found = torch.from_numpy(model(_of(features, judging, text)))
    return Baseline(f"TF-IDF + {kind}", target.scores(found, _labels(target, judging)), note=note)


def _of(features: TextFeatures, rows: Sequence[Row], text: Callable[[Row], str]) -> Any:
    return features.transform([text(row) for row in rows])


def _labels(target: Target, rows: Sequence[Row]) -> list[np.ndarray]:
    return [target.encode(row.fields["label"], where=row.where, strict=False) for row in rows]


def _sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-np.clip(logits, -60, 60)))


def frequent_tag_baseline(train: Iterable[Row], rows: Sequence[Row]) -> Baseline:
    """The tag that a word has most often: as it is written, in lower case, or for an unknown word that of all words."""
    written: dict[str, Counter[str]] = defaultdict(Counter)
    lowered: dict[str, Counter[str]] = defaultdict(Counter)
    every: Counter[str] = Counter()
    for row in train:
        for word, known in zip(row.fields["words"], row.fields["tags"], strict=True):
            written[word][known] += 1
            lowered[word.lower()][known] += 1
        every.update(row.fields["tags"])

    def tag(word: str) -> str:
        counts = written.get(word) or lowered.get(word.lower()) or every
        return max(sorted(counts), key=lambda each: counts[each])

    found = [[tag(word) for word in row.fields["words"]] for row in rows]
    wanted = [row.fields["tags"] for row in rows]
    pairs = [pair for one, other in zip(found, wanted, strict=True) for pair in zip(one, other, strict=True)]
    accuracy = sum(one == other for one, other in pairs) / max(1, len(pairs))
    return Baseline("the most frequent tag of each word", {**entity_scores(found, wanted), "accuracy": accuracy})


def retrieval_baseline(
    rows: Sequence[Row], scores: Callable[[Sequence[Row], Callable[[torch.Tensor], torch.Tensor]], dict[str, float]]
) -> Baseline:
    """The `b` whose TF-IDF vector is nearest to that of `a`. It needs no training pairs: the document frequencies are
    those of the texts that are searched. `scores` computes them from the cosines of some rows with all."""
    kept, note = thinned(rows, lambda row: 1, most=RETRIEVED, what="held-out pairs")
    features = TextFeatures()
    features.fit([row.fields[side] for row in kept for side in ("a", "b")])
    first, second = (features.transform([row.fields[side] for row in kept]) for side in ("a", "b"))

    def cosines(chunk: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy((first[chunk.numpy()] @ second.T).toarray() / features.kinds)

    found = scores(kept, cosines)
    return Baseline("TF-IDF retrieval", {name: found[name] for name in ("accuracy", "mrr")}, note=note)


def ngram_model(ids_of: Iterable[Sequence[int]], *, vocab: int, order: int) -> tuple[NgramModel, str]:
    kept, note = thinned(ids_of, len, most=TOKENS, what="training texts")
    ids = np.concatenate([np.zeros(0, np.int64), *(np.asarray(each, np.int64) for each in kept)])
    if len(ids) > 2 * TOKENS:  # one long text
        note, ids = f"on {TOKENS:,} of {len(ids):,} training tokens", ids[:TOKENS]
    return NgramModel(ids, vocab=vocab, order=order), note
