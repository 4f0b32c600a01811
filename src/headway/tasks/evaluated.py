"""What a report of an evaluation is written from, whatever the task: scores, an account of every example, sums for the
bootstrap, and what a task has besides: scores of each class, a confusion matrix, confidences, numbers.

A task returns one of these classes from `Task.predictions`; the report (`headway.jobs.report`) knows no task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headway.data.row import Row
from headway.tasks.counts import Counts

ClassScores = dict[str, dict[str, float]]  # class -> precision, recall, f1, examples, …


@dataclass(frozen=True)
class Judged:
    """One example with its prediction, as texts."""

    row: Row
    given: Mapping[str, str]  # the parts of the input by name; empty for pictures and sounds
    wanted: str
    found: str
    score: float
    detail: str = ""  # more about the score


class Evaluated:
    """The base has scores only."""

    metric: str = ""  # the name in `scores` of the score that `counts` gives
    example_score: ClassVar[str] = ""  # what the score of an example is
    best_example: ClassVar[float] = 1.0  # the score of an example without a mistake

    def __init__(self, scores: dict[str, float]) -> None:
        self._scores = scores

    def scores(self) -> dict[str, float]:
        return self._scores

    def judged(self) -> list[Judged]:
        """Every example in order; empty if the task does not judge single examples."""
        return []

    def counts(self) -> Counts | None:
        """What `metric` is computed from, example by example."""
        return None

    def by_class(self) -> ClassScores:
        return {}

    def confusion(self) -> tuple[list[str], np.ndarray] | None:
        """Labels and (label, predicted label) counts."""
        return None

    def confidence(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(example,) probability of the prediction, and whether it is right."""
        return None

    def numbers(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(example,) true and predicted numbers."""
        return None

    def worst(self) -> list[Judged]:
        """The examples with a mistake, the worst first; of equal ones the first."""
        wrong = [each for each in self.judged() if each.score != self.best_example]
        return sorted(wrong, key=lambda each: each.score, reverse=self.best_example < 1)


def class_scores(right: np.ndarray, found: np.ndarray, wanted: np.ndarray, names: Sequence[str]) -> ClassScores:
    """Precision, recall, F1 and the number of examples of each class; 0 where a class is never predicted."""
    return {
        name: {
            "precision": float(right[i] / max(found[i], 1)),
            "recall": float(right[i] / max(wanted[i], 1)),
            "f1": float(2 * right[i] / max(found[i] + wanted[i], 1)),
            "examples": int(wanted[i]),
        }
        for i, name in enumerate(names)
    }


def input_texts(row: Row, fields: Sequence[str]) -> dict[str, str]:
    """The parts of an input that are texts."""
    parts = {name: row.fields[name] for name in fields if name in row.fields}
    joined = {name: " ".join(value) if isinstance(value, list) else value for name, value in parts.items()}
    return {name: value for name, value in joined.items() if isinstance(value, str)}
