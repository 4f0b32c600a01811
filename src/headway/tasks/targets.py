"""What the logits of a classification head mean: one label of several, a number, or any of several labels. Each kind
has its target, loss, answer and scores; a task of classification has one of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.data.report import best_constant
from headway.data.target_kinds import parse_number, split_labels
from headway.errors import ConfigError, DataError
from headway.kinds.predictions import LabelPrediction, LabelSetPrediction, NumberPrediction, PredictionKind

UNKNOWN = -1  # the index of a label that the model does not have
Answers = list[dict[str, Any]]


class Target(ABC):
    metric: ClassVar[str]
    kind: ClassVar[PredictionKind]
    problem_type: ClassVar[str | None] = None  # in a published config.json
    options: ClassVar[tuple[str, ...]] = ("top", "threshold")  # of `answers`

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Logits of an example."""

    @abstractmethod
    def encode(self, label: Any, *, where: str, strict: bool = True) -> np.ndarray:
        """A label of the data as the array of an example; `strict`: an unknown label raises."""

    @abstractmethod
    def collate(self, labels: Sequence[np.ndarray]) -> Tensor:
        """The target of a batch, a row an example."""

    @abstractmethod
    def loss(self, logits: Tensor, target: Tensor, *, training: bool) -> Tensor:
        """The sum over the examples."""

    @abstractmethod
    def answers(self, logits: Tensor, *, top: int | None = None, threshold: float | None = None) -> Answers:
        """The prediction for each row of logits; `top` keeps that many scores, a label below `threshold` is none."""

    @abstractmethod
    def scores(self, logits: Tensor, labels: Sequence[np.ndarray]) -> dict[str, float]:
        """The scores of a data set."""


@dataclass(frozen=True)
class OneLabel(Target):
    """Softmax over the labels."""

    labels: Sequence[str]
    smoothing: float = 0.0
    weights: Sequence[float] = ()  # of the labels in the training loss; empty: all count alike

    metric: ClassVar[str] = "accuracy"
    kind: ClassVar[PredictionKind] = LabelPrediction()

    @property
    def outputs(self) -> int:
        return len(self.labels)

    def encode(self, label: Any, *, where: str, strict: bool = True) -> np.ndarray:
        if not isinstance(label, str):
            raise DataError(f"{where}: label: a list of labels, where the model has one; see task.kind=multilabel")
        index = label_index(self.labels, label, where=where) if strict or label in self.labels else UNKNOWN
        return np.array([index], dtype=np.int32)

    def collate(self, labels: Sequence[np.ndarray]) -> Tensor:
        return torch.tensor([label[0] for label in labels], dtype=torch.long)  # (batch)

    def soft_labels(self, labels: Sequence[np.ndarray]) -> Tensor:
        """The probability that each label should have, (example, label); 0 for all where the label is unknown."""
        target = self.collate(labels)
        return F.one_hot(target.clamp(min=0), len(self.labels)) * (target != UNKNOWN)[:, None]

    def loss(self, logits: Tensor, target: Tensor, *, training: bool) -> Tensor:
        smoothing, weight = (self.smoothing, self.weights) if training else (0.0, ())
        weights = torch.tensor(weight, dtype=logits.dtype, device=logits.device) if weight else None
        return F.cross_entropy(
            logits, target, weights, label_smoothing=smoothing, ignore_index=UNKNOWN, reduction="sum"
        )

    def answers(self, logits: Tensor, *, top: int | None = None, threshold: float | None = None) -> Answers:
        out = []
        for row in logits.softmax(-1):
            scores = ranked(self.labels, row, top)
            label, score = next(iter(scores.items()))
            sure = threshold is None or score >= threshold
            out.append({"label": label if sure else None, "score": score, "scores": scores})
        return out

    def scores(self, logits: Tensor, labels: Sequence[np.ndarray]) -> dict[str, float]:
        """Accuracy, macro F1 and loss; `majority` is the accuracy of always predicting the most frequent label. An
        unknown label counts as an error and has no loss."""
        target = self.collate(labels)
        known = max(int((target != UNKNOWN).sum()), 1)
        loss = float(self.loss(logits, target, training=False)) / known
        return {**label_scores(logits.argmax(-1).numpy(), target.numpy()), "loss": loss}


@dataclass(frozen=True)
class SoftLabel(OneLabel):
    """The probability that the second of two labels should have."""

    def encode(self, label: Any, *, where: str, strict: bool = True) -> np.ndarray:
        return np.array([label], dtype=np.float32)

    def collate(self, labels: Sequence[np.ndarray]) -> Tensor:
        return torch.from_numpy(np.concatenate(labels))  # (batch)

    def soft_labels(self, labels: Sequence[np.ndarray]) -> Tensor:
        second = self.collate(labels)
        return torch.stack([1 - second, second], dim=1)

    def loss(self, logits: Tensor, target: Tensor, *, training: bool) -> Tensor:
        return F.cross_entropy(logits, torch.stack([1 - target, target], dim=1).to(logits.dtype), reduction="sum")


@dataclass(frozen=True)
class Scale:
    """Mean and standard deviation of the numbers that a model is trained to predict."""

    mean: float = 0.0
    std: float = 1.0

    def __post_init__(self) -> None:
        if not (isfinite(self.mean) and isfinite(self.std) and self.std > 0):
            raise ConfigError(f"scale: mean {self.mean} and std {self.std}: both must be finite, std above 0")

    def without_mean(self) -> Scale:
        """For an output layer without bias, into which no mean can go."""
        return Scale(0.0, sqrt(self.mean**2 + self.std**2))


@dataclass(frozen=True)
class Number(Target):
    """Regression: one output. While a model is trained it predicts standardised numbers, of mean 0 and variance 1 over
    the training data; afterwards mean and deviation are in its last layer, and the outputs are the predictions."""

    scale: Scale = Scale()
    standardised: bool = False
    names: Sequence[str] = ("value",)  # of the outputs; a published model may have several
    decimal: str = ""  # the mark of decimals in the data; "": a point

    metric: ClassVar[str] = "mae"
    kind: ClassVar[PredictionKind] = NumberPrediction()
    problem_type: ClassVar[str | None] = "regression"
    options: ClassVar[tuple[str, ...]] = ()

    @property
    def outputs(self) -> int:
        return len(self.names)

    def encode(self, label: Any, *, where: str, strict: bool = True) -> np.ndarray:
        value = parse_number(label, self.decimal) if isinstance(label, str) else None
        if value is None:
            mark = f' with "{self.decimal}" as the mark of decimals' if self.decimal else ""
            raise DataError(
                f"{where}: label: {label!r:.60} is not a finite number{mark}; give one, or remove the example"
            )
        return np.array([value], dtype=np.float64)

    def collate(self, labels: Sequence[np.ndarray]) -> Tensor:
        values = (np.concatenate(labels) - self.scale.mean) / self.scale.std
        return torch.from_numpy(values.astype(np.float32))  # (batch), standardised

    def loss(self, logits: Tensor, target: Tensor, *, training: bool) -> Tensor:
        found = logits[:, 0]
        if not self.standardised:
            found = (found - self.scale.mean) / self.scale.std
        return F.mse_loss(found, target, reduction="sum")

    def values(self, logits: Tensor) -> np.ndarray:
        """(example, output), on the scale of the data."""
        values = logits.double().numpy()
        return values * self.scale.std + self.scale.mean if self.standardised else values

    def answers(self, logits: Tensor, *, top: int | None = None, threshold: float | None = None) -> Answers:
        if self.outputs == 1:
            return [{"value": float(row[0])} for row in self.values(logits)]
        return [{"values": dict(zip(self.names, row.tolist(), strict=True))} for row in self.values(logits)]

    def scores(self, logits: Tensor, labels: Sequence[np.ndarray]) -> dict[str, float]:
        """Correlations, mean absolute error and loss (squared error of the standardised numbers); `mean_mae` is the
        mean absolute error of always predicting the mean. A correlation with a constant is 0."""
        wanted, found = np.concatenate(labels), self.values(logits)[:, 0]
        return {
            "mae": float(np.abs(found - wanted).mean()),
            "mean_mae": float(np.abs(wanted - wanted.mean()).mean()),
            "pearson": pearson(found, wanted),
            "spearman": pearson(ranks(found), ranks(wanted)),
            "loss": float(self.loss(logits, self.collate(labels), training=False)) / len(wanted),
        }


@dataclass(frozen=True)
class LabelSet(Target):
    """A sigmoid for each label; those above one threshold are predicted."""

    labels: Sequence[str]
    threshold: float = 0.5
    delimiter: str = ""

    metric: ClassVar[str] = "micro_f1"
    kind: ClassVar[PredictionKind] = LabelSetPrediction()
    problem_type: ClassVar[str | None] = "multi_label_classification"

    @property
    def outputs(self) -> int:
        return len(self.labels)

    def encode(self, label: Any, *, where: str, strict: bool = True) -> np.ndarray:
        """An unknown label is never an error: a rare one may be in the held-out part alone."""
        known = {name: index for index, name in enumerate(self.labels)}
        return np.array([known.get(part, UNKNOWN) for part in split_labels(label, self.delimiter)], dtype=np.int32)

    def collate(self, labels: Sequence[np.ndarray]) -> Tensor:
        out = torch.zeros(len(labels), len(self.labels))  # (batch, label), 1 where it has the label
        for row, indices in enumerate(labels):
            out[row, indices[indices != UNKNOWN].tolist()] = 1.0
        return out

    def loss(self, logits: Tensor, target: Tensor, *, training: bool) -> Tensor:
        """The mean over the labels, so that it does not grow with their number."""
        return F.binary_cross_entropy_with_logits(logits, target.to(logits.dtype), reduction="sum") / len(self.labels)

    def answers(self, logits: Tensor, *, top: int | None = None, threshold: float | None = None) -> Answers:
        out, least = [], self.threshold if threshold is None else threshold
        for row in logits.sigmoid():
            scores = ranked(self.labels, row, None)
            chosen = [label for label, score in scores.items() if score > least]
            out.append({"labels": chosen, "scores": dict(list(scores.items())[:top])})
        return out

    def scores(self, logits: Tensor, labels: Sequence[np.ndarray]) -> dict[str, float]:
        """Micro F1 over all decisions, macro F1 over the labels that occur, predicted or true; `exact` is the share of
        examples with exactly the right labels, `majority` the micro F1 of always predicting the same most frequent
        labels. `unknown_labels` are true ones that the model does not have, each of them a miss."""
        target = self.collate(labels)
        found, wanted = (logits.sigmoid() > self.threshold).numpy(), target.numpy() > 0
        unknown = np.array([int((each == UNKNOWN).sum()) for each in labels])
        right, predicted, true = (found & wanted).sum(0), found.sum(0), wanted.sum(0)  # of each label
        occur = predicted + true > 0
        per_label = [*(2 * right[occur] / (predicted + true)[occur]), *([0.0] if unknown.any() else [])]
        counts = sorted(true.tolist(), reverse=True)
        _, majority = best_constant(counts, examples=len(labels), others=int(unknown.sum()))
        out = {
            "micro_f1": f1(right.sum(), predicted.sum(), true.sum() + unknown.sum()),
            "macro_f1": float(np.mean(per_label)) if per_label else 1.0,
            "exact": float(((found == wanted).all(1) & (unknown == 0)).mean()),
            "majority": majority,
            "loss": float(self.loss(logits, target, training=False)) / len(labels),
        }
        return out | ({"unknown_labels": float(unknown.sum())} if unknown.any() else {})


def ranked(labels: Sequence[str], row: Tensor, top: int | None) -> dict[str, float]:
    """label -> score, highest first."""
    order = row.argsort(descending=True, stable=True)[:top].tolist()
    return {labels[index]: float(row[index]) for index in order}


def label_index(labels: Sequence[str], label: str, *, where: str) -> int:
    if label not in labels:
        known = ", ".join(map(repr, labels[:20])) + (" …" if len(labels) > 20 else "")
        raise DataError(f"{where}: label {label!r} is not one of the model's labels ({known})")
    return labels.index(label)


def label_scores(found: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """Macro F1 is the mean over the labels that occur, predicted or true, as in scikit-learn and torchmetrics. Computed
    here because the library takes longer to import than a small evaluation takes."""
    each = []
    for label in np.union1d(found, wanted):
        right = int(((found == label) & (wanted == label)).sum())
        each.append(f1(right, int((found == label).sum()), int((wanted == label).sum())))
    return {
        "accuracy": float((found == wanted).mean()),
        "macro_f1": float(np.mean(each)),
        "majority": float(np.unique(wanted, return_counts=True)[1].max() / len(wanted)),
    }


def f1(right: float, found: float, wanted: float) -> float:
    """1 where nothing was wanted and nothing found."""
    return float(2 * right / (found + wanted)) if found + wanted else 1.0


def fitted_threshold(scores: np.ndarray, wanted: np.ndarray) -> float:
    """The threshold on scores with the best micro F1: halfway between two scores, the nearest to 0.5 of equal ones."""
    order = np.argsort(-scores, axis=None, kind="stable")
    sorted_scores, hits = scores.ravel()[order], np.cumsum(wanted.ravel()[order])
    found = np.arange(1, len(order) + 1)
    values = 2 * hits / (found + wanted.sum())
    edges = np.append(sorted_scores[1:], 0.0)
    possible = sorted_scores > edges  # equal scores are on one side
    middle = (sorted_scores + edges) / 2
    best = possible & (values >= values[possible].max() - 1e-12)
    return float(min(middle[best], key=lambda value: abs(value - 0.5)))


def ranks(values: np.ndarray) -> np.ndarray:
    """Ranks from 1; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]


def pearson(one: np.ndarray, other: np.ndarray) -> float:
    if np.ptp(one) == 0 or np.ptp(other) == 0:
        return 0.0
    one, other = one - one.mean(), other - other.mean()
    return float(np.clip(one @ other / (np.linalg.norm(one) * np.linalg.norm(other)), -1, 1))
