"""Evaluations of classifiers: one label, any number of labels, or a number for each example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

import numpy as np
from torch import Tensor

from headway.data.read import Row
from headway.tasks.counts import Counts, word_lengths
from headway.tasks.evaluated import ClassScores, Evaluated, Judged, class_scores, input_texts
from headway.tasks.targets import UNKNOWN, LabelSet, Number, OneLabel, Target

INPUTS = ("text", "text_pair")
SomeTarget = TypeVar("SomeTarget", bound=Target)


def label_predictions(target: Target, rows: list[Row], logits: Tensor, labels: Sequence[np.ndarray]) -> Evaluated:
    """What a model predicts for labelled rows; `labels` as the target encodes them."""
    if isinstance(target, OneLabel):
        return Labels(list(target.labels), rows, np.concatenate(labels), logits)
    if isinstance(target, LabelSet):
        return LabelSets(target, rows, labels, logits)
    assert isinstance(target, Number)
    return Numbers(target, rows, labels, logits)


def input_lengths(rows: Sequence[Row]) -> np.ndarray:
    """Words of each input; 0 for pictures."""
    return word_lengths([" ".join(input_texts(row, INPUTS).values()) for row in rows])


@dataclass
class Labels(Evaluated):
    """One label of several for each example."""

    labels: list[str]
    rows: list[Row]
    wanted: np.ndarray  # (row,), indices of labels
    logits: Tensor  # (row, label)

    metric: str = "accuracy"
    example_score: ClassVar[str] = "probability of the label"

    @cached_property
    def found(self) -> np.ndarray:  # (row,)
        return self.logits.argmax(-1).numpy()

    @cached_property
    def probabilities(self) -> np.ndarray:  # (row, label)
        return self.logits.softmax(-1).numpy()

    def scores(self) -> dict[str, float]:
        return OneLabel(self.labels).scores(self.logits, [np.array([label]) for label in self.wanted])

    def confusion(self) -> tuple[list[str], np.ndarray]:
        counts = np.zeros((len(self.labels),) * 2, np.int64)
        np.add.at(counts, (self.wanted, self.found), 1)
        return self.labels, counts

    def by_class(self) -> ClassScores:
        counts = self.confusion()[1]
        return class_scores(counts.diagonal(), counts.sum(0), counts.sum(1), self.labels)

    def counts(self) -> Counts:
        right = (self.found == self.wanted).astype(np.int64)
        return Counts(np.stack([right, np.ones_like(right)], axis=1), input_lengths(self.rows), "accuracy", [])

    def confidence(self) -> tuple[np.ndarray, np.ndarray]:
        return self.probabilities.max(-1), self.found == self.wanted

    def judged(self) -> list[Judged]:
        out = []
        for at, (row, wanted, found) in enumerate(zip(self.rows, self.wanted, self.found, strict=True)):
            score, own = float(self.probabilities[at, wanted]), float(self.probabilities[at, found])
            given = input_texts(row, INPUTS)
            out.append(Judged(row, given, self.labels[wanted], self.labels[found], score, f"predicted with {own:.1%}"))
        return out

    def worst(self) -> list[Judged]:
        """All wrong predictions; first those in which the label was least probable."""
        wrong = [each for each, right in zip(self.judged(), self.found == self.wanted, strict=True) if not right]
        return sorted(wrong, key=lambda each: each.score)


@dataclass
class OfTarget(Evaluated, Generic[SomeTarget]):
    target: SomeTarget
    rows: list[Row]
    wanted: Sequence[np.ndarray]
    logits: Tensor  # (row, output)

    def scores(self) -> dict[str, float]:
        return self.target.scores(self.logits, self.wanted)


@dataclass
class LabelSets(OfTarget[LabelSet]):
    """Any number of labels for each example; an output each."""

    metric: str = "micro_f1"
    example_score: ClassVar[str] = "F1 of the example's labels"

    @cached_property
    def _decisions(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(row, label) predicted and true, and (row,) true labels that the model does not have."""
        found = (self.logits.sigmoid() > self.target.threshold).numpy()
        unknown = np.array([int((each == UNKNOWN).sum()) for each in self.wanted])
        return found, self.target.collate(self.wanted).numpy() > 0, unknown

    def by_class(self) -> ClassScores:
        found, wanted, _ = self._decisions
        return class_scores((found & wanted).sum(0), found.sum(0), wanted.sum(0), self.target.labels)

    def _sums(self) -> np.ndarray:
        """(row, 3): right, predicted and true labels."""
        found, wanted, unknown = self._decisions
        return np.stack([(found & wanted).sum(1), found.sum(1), wanted.sum(1) + unknown], axis=1)

    def counts(self) -> Counts:
        return Counts(self._sums(), input_lengths(self.rows), "f1", [])

    def confidence(self) -> tuple[np.ndarray, np.ndarray]:
        """Of every decision about a label of an example."""
        wanted, probability = self._decisions[1], self.logits.sigmoid().numpy()
        likely = probability > 0.5
        return np.where(likely, probability, 1 - probability).ravel(), (likely == wanted).ravel()

    def judged(self) -> list[Judged]:
        out = []
        for row, found, (right, predicted, true) in zip(self.rows, self._decisions[0], self._sums(), strict=True):
            names = [label for label, chosen in zip(self.target.labels, found, strict=True) if chosen]
            label = row.fields["label"]
            wanted = label if isinstance(label, str) else ", ".join(label)
            score = 2 * right / (predicted + true) if predicted + true else 1.0
            out.append(Judged(row, input_texts(row, INPUTS), wanted, ", ".join(names) or "none", float(score)))
        return out


@dataclass
class Numbers(OfTarget[Number]):
    """A number for each example."""

    metric: str = "mae"
    example_score: ClassVar[str] = "absolute error"
    best_example: ClassVar[float] = 0.0

    def numbers(self) -> tuple[np.ndarray, np.ndarray]:
        return np.concatenate(self.wanted), self.target.values(self.logits)[:, 0]

    def counts(self) -> Counts:
        wanted, found = self.numbers()
        errors = np.abs(found - wanted)
        return Counts(np.stack([errors, np.ones_like(errors)], axis=1), input_lengths(self.rows), "mae", [])

    def judged(self) -> list[Judged]:
        return [
            Judged(row, input_texts(row, INPUTS), f"{wanted:.6g}", f"{found:.6g}", float(abs(found - wanted)))
            for row, wanted, found in zip(self.rows, *self.numbers(), strict=True)
        ]
