"""The n-grams of tokens that a linear map beside a network reads (`layers/ngrams.py`), and the fit of that map before
training: logistic or ridge regression, as in the baseline that the run is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.baselines.linear import Kind, fit
from headway.layers.ngrams import NgramConfig, NgramLinear, ngram_keys
from headway.tasks.targets import LabelSet, Number, Target

LEAST = 2  # texts that an n-gram must occur in
WEIGHTS = 1_500_000  # of the linear map: with more outputs it has fewer features
TEXT = 12_000_000  # characters of the training texts that are used, at most
STRENGTH: dict[Kind, float] = {"one": 0.1, "several": 0.1, "number": 1.0}  # of the L2 penalty, as in the baseline
CLOSE = 1e-5  # to the optimum


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
def fit_ngrams(layer: NgramLinear, ngrams: Ngrams, texts: Sequence[Sequence[int] | np.ndarray], *, target: Target,
               labels: Sequence[np.ndarray]) -> None:  # fmt: skip
    """Sets the tensors of the layer. `labels` are those of the texts, encoded by the target."""
    layer.keys.copy_(ngrams.keys)
    layer.idf.copy_(ngrams.idf)
    kind, wanted = _targets(target, labels)
    model = fit(feature_matrix(layer, texts), wanted, kind=kind, strength=STRENGTH[kind], tolerance=CLOSE)
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


def _targets(target: Target, labels: Sequence[np.ndarray]) -> tuple[Kind, np.ndarray]:
    """What the linear model is fitted to, (text, output); numbers are standardised, as in training."""
    if isinstance(target, Number):
        return "number", target.collate(labels).numpy().astype(np.float64)[:, None]
    if isinstance(target, LabelSet):
        return "several", target.collate(labels).numpy().astype(np.float64)
    return "one", np.eye(target.outputs)[[int(each[0]) for each in labels]]
