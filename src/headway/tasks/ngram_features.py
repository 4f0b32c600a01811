"""The n-grams of tokens that a linear map beside a network reads (`layers/ngrams.py`), the fit of that map before
training, and of the weights of all parts of a classifier after it (stacking, Wolpert 1992).

The fit is the mean of two: a logistic regression, as in the baseline that the run is compared with, and one whose
features are scaled by their log-count ratios of naive Bayes (NB-SVM, Wang & Manning 2012). In both the weight of a
token is its own plus those of its n-grams of characters, so that tokens that are spelled alike have similar weights
(as in fastText).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.baselines.linear import fit
from headway.baselines.tfidf import CHARACTERS
from headway.layers.ngrams import NgramConfig, NgramLinear, ngram_keys

WEIGHTS = 1_500_000  # of the linear map: with more outputs it has fewer features, of n-grams as of characters
TEXT = 12_000_000  # characters of the training texts that are used, at most
STRENGTH = 0.1  # as in the baseline
CLOSE = 1e-5  # to the optimum
LARGEST = 4.0  # weight of a part


@dataclass(frozen=True)
class Ngrams:
    """Those of a set of texts that become features."""

    keys: Tensor  # (feature), ascending
    idf: Tensor  # (feature)


def find_ngrams(texts: Sequence[Sequence[int] | np.ndarray], *, vocab: int, order: int, outputs: int) -> Ngrams:
    """The n-grams of the texts; of too many those of the most texts."""
    config = NgramConfig(1, vocab, order)
    keys = [np.unique(ngram_keys(torch.tensor([list(ids)]), None, config)[0].numpy()) for ids in texts if len(ids)]
    found, frequency = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]), return_counts=True)
    kept = _frequent(frequency, outputs)
    idf = 1 + np.log((1 + len(texts)) / (1 + frequency[kept]))
    return Ngrams(torch.from_numpy(found[kept]), torch.from_numpy(idf).float())


def _frequent(frequency: np.ndarray, outputs: int) -> np.ndarray:
    """Whether each is a feature: of too many those that occur most often."""
    most = max(1000, WEIGHTS // outputs)
    kept = np.zeros(len(frequency), dtype=bool)
    kept[np.argsort(-frequency, kind="stable")[:most]] = True
    return kept


@torch.no_grad()
def fit_ngrams(
    layer: NgramLinear, ngrams: Ngrams, texts: Sequence[Sequence[int] | np.ndarray], wanted: np.ndarray, *,
    spelling: Callable[[int], str], strength: float = STRENGTH,
) -> None:  # fmt: skip
    """Sets the tensors of the layer. `wanted` (text, output) is the probability that each output should have,
    `spelling` is the text of a token, `strength` that of the L2 penalty."""
    from scipy.sparse import hstack

    layer.keys.copy_(ngrams.keys)
    layer.idf.copy_(ngrams.idf)
    features, characters = feature_matrix(layer, texts), character_matrix(layer, spelling)
    inputs = hstack([features, features @ characters]).tocsr()
    fits = [
        fit(inputs, wanted, kind="one", strength=strength, scales=scales, tolerance=CLOSE)
        for scales in (count_ratios(inputs, wanted), 1.0)
    ]
    own, shared = np.split(np.mean([each.weights for each in fits], axis=0), [features.shape[1]])
    layer.weight.copy_(torch.from_numpy(own + characters @ shared))
    layer.bias.copy_(torch.from_numpy(np.mean([each.intercept for each in fits], axis=0)))


def count_ratios(inputs: Any, targets: np.ndarray) -> np.ndarray:
    """(feature, output): the log-count ratios of naive Bayes, with add-one smoothing: how much more often a feature
    occurs in texts of the output than in others. `targets` (text, output) are 0 or 1."""
    occurs = (inputs > 0).astype(np.float64)
    inside, outside = 1 + occurs.T @ targets, 1 + occurs.T @ (1 - targets)
    return np.log(inside / inside.sum(0)) - np.log(outside / outside.sum(0))


def character_matrix(layer: NgramLinear, spelling: Callable[[int], str]) -> Any:
    """(feature, n-gram of characters), sparse: which of them a single token has, as a vector of length 1."""
    from scipy.sparse import csr_matrix

    rows, columns, numbers = list[int](), list[int](), dict[str, int]()
    for feature, key in enumerate(layer.keys.tolist()):
        if key > layer.config.vocab:
            break  # the keys are sorted: the longer n-grams of tokens follow
        token = f" {spelling(key - 1)} "
        for ngram in sorted({token[i : i + size] for size in CHARACTERS for i in range(len(token) - size + 1)}):
            rows.append(feature)
            columns.append(numbers.setdefault(ngram, len(numbers)))
    shape = layer.config.features, len(numbers)
    found = csr_matrix((np.ones(len(rows), np.float32), (rows, columns)), shape=shape)
    found = found[:, _frequent(np.bincount(columns, minlength=len(numbers)), layer.weight.shape[1])]
    lengths = np.sqrt(np.asarray(found.sum(1))).clip(min=1)
    return found.multiply(1 / lengths).tocsr()


def feature_matrix(layer: NgramLinear, texts: Sequence[Sequence[int] | np.ndarray]) -> Any:
    """(text, feature), sparse."""
    from scipy.sparse import csr_matrix

    rows, columns, values = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for row, ids in enumerate(texts):
        if len(ids):
            place, value = (each[0].numpy() for each in layer.features(torch.tensor([list(ids)]), None))
            rows.append(np.full(int((value != 0).sum()), row))
            columns.append(place[value != 0])
            values.append(value[value != 0])
    none = np.zeros(0, np.int64)
    shape = len(texts), layer.config.features
    parts = (np.concatenate([none, *columns]), np.concatenate([none, *rows]))
    return csr_matrix((np.concatenate([none.astype(np.float32), *values]), parts[::-1]), shape=shape)


def fit_weights(parts: Tensor, wanted: Tensor) -> list[float]:
    """Those of a weighted sum with the lowest cross-entropy on examples that no part was trained on: logits (part,
    example, output), and the probability that each output should have (example, output). The problem is convex."""
    from scipy.optimize import minimize

    known = wanted.any(-1)
    logits, wanted = parts[:, known].double(), wanted[known].double()
    if not len(wanted):
        return [1.0] * len(parts)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        both = weighted_sum(logits, values.tolist())
        residual = both.softmax(-1) - wanted
        return float(F.cross_entropy(both, wanted)), torch.einsum("pno,no->p", logits, residual).numpy() / len(wanted)

    start = np.full(len(parts), 1 / len(parts))
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=[(0.0, LARGEST)] * len(parts)).x
    return [float(value) for value in found]


def weighted_sum(parts: Tensor, weights: Sequence[float]) -> Tensor:
    """(part, example, output) → (example, output)"""
    return torch.einsum("p,pno->no", torch.tensor(weights, dtype=parts.dtype), parts)
