"""The n-grams of tokens that a linear map beside a network reads (`layers/ngrams.py`), the fit of that map before
training (logistic regression, as in the baseline that the run is compared with), and of the weights of both parts after
it (stacking, Wolpert 1992)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.baselines.linear import fit
from headway.layers.ngrams import NgramConfig, NgramLinear, ngram_keys
from headway.tasks.targets import UNKNOWN

LEAST = 2  # texts that an n-gram must occur in
WEIGHTS = 1_500_000  # of the linear map: with more outputs it has fewer features
TEXT = 12_000_000  # characters of the training texts that are used, at most
STRENGTH = 0.1  # of the L2 penalty, as in the baseline
CLOSE = 1e-5  # to the optimum
LARGEST = 4.0  # weight of a part


@dataclass(frozen=True)
class Ngrams:
    """Those of a set of texts that become features."""

    keys: Tensor  # (feature), ascending
    idf: Tensor  # (feature)


def find_ngrams(texts: Sequence[Sequence[int] | np.ndarray], *, vocab: int, order: int, outputs: int) -> Ngrams:
    """The n-grams of at least LEAST of the texts; of too many those of the most texts."""
    config = NgramConfig(1, vocab, order)
    keys = [np.unique(ngram_keys(torch.tensor([list(ids)]), None, config)[0].numpy()) for ids in texts if len(ids)]
    found, frequency = np.unique(np.concatenate([np.zeros(0, np.int64), *keys]), return_counts=True)
    kept = frequency >= LEAST
    if kept.sum() > (most := max(1000, WEIGHTS // outputs)):
        order_by = np.argsort(-frequency, kind="stable")[:most]
        kept = np.zeros_like(kept)
        kept[order_by] = True
    idf = 1 + np.log((1 + len(texts)) / (1 + frequency[kept]))
    return Ngrams(torch.from_numpy(found[kept]), torch.from_numpy(idf).float())


@torch.no_grad()
def fit_ngrams(
    layer: NgramLinear, ngrams: Ngrams, texts: Sequence[Sequence[int] | np.ndarray], labels: Sequence[int]
) -> None:
    """Sets the tensors of the layer. `labels` are the outputs that are right for the texts."""
    layer.keys.copy_(ngrams.keys)
    layer.idf.copy_(ngrams.idf)
    wanted = np.eye(layer.weight.shape[1])[list(labels)]
    model = fit(feature_matrix(layer, texts), wanted, kind="one", strength=STRENGTH, tolerance=CLOSE)
    layer.weight.copy_(torch.from_numpy(model.weights))
    layer.bias.copy_(torch.from_numpy(model.intercept))


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


@dataclass(frozen=True)
class Weights:
    """Of the two parts of the logits."""

    network: float = 1.0
    ngrams: float = 1.0

    def __call__(self, network: Tensor, ngrams: Tensor) -> Tensor:
        return self.network * network + self.ngrams * ngrams


def fit_weights(network: Tensor, ngrams: Tensor, labels: Tensor) -> Weights:
    """Those with the lowest cross-entropy on examples that no part was trained on: logits (example, output) of both
    parts, and the right output of each example. The problem is convex."""
    from scipy.optimize import minimize

    known = labels != UNKNOWN
    parts, wanted = torch.stack([network, ngrams])[:, known].double(), labels[known]  # (part, example, output)
    if not len(wanted):
        return Weights()

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        logits = torch.einsum("p,pno->no", torch.from_numpy(values), parts)
        residual = logits.softmax(-1) - F.one_hot(wanted, logits.shape[1])
        loss = F.cross_entropy(logits, wanted)
        return float(loss), torch.einsum("pno,no->p", parts, residual).numpy() / len(wanted)

    found = minimize(objective, np.array([0.5, 0.5]), jac=True, method="L-BFGS-B", bounds=[(0.0, LARGEST)] * 2).x
    return Weights(*map(float, found))
