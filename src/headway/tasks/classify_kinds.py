"""What `classify` predicts: one label, any number of labels, or a number; found in the data unless `task.kind` says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp, log
from typing import Any

import numpy as np

from headway.data.check import Checker, NumberSummary
from headway.data.facts import Facts
from headway.data.read import Row
from headway.data.split import input_hash
from headway.data.target_kinds import (
    MARKED,
    Detected,
    Found,
    Kind,
    best_delimiter,
    decimal_mark,
    detect,
    parse_number,
    split_labels,
)
from headway.errors import ConfigError, DataError
from headway.models.protocol import Model
from headway.models.rehead import apply_scale
from headway.tasks.classification import Classification
from headway.tasks.targets import LabelSet, Number, OneLabel, Scale, Target, fitted_threshold

# options that earlier versions did not have, and their defaults
NEW = {"kind": "labels", "delimiter": "", "threshold": None, "scale": None, "balance": False, "decimal": ""}


@dataclass
class KindClassification(Classification):
    kind: Kind = "labels"  # one label, a number, or any of several labels; found in the data unless it is given
    delimiter: str = ""  # multilabel: between the labels of a text
    threshold: float | None = None  # multilabel: labels of higher probability are predicted; None: 0.5, not fitted
    scale: Scale | None = None  # regression: of the numbers in the training data
    # regression: the mark of decimals in the data, "," or "."; found in the data unless it is given
    decimal: str = field(default="", repr=False)
    balance: bool = False  # labels: rare ones weigh more in the training loss

    def __post_init__(self) -> None:
        super().__post_init__()
        self.standardised = False  # regression: whether the logits are; they are during training
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ConfigError(f"threshold is {self.threshold}: it must be from 0 to 1")
        if self.decimal and self.decimal not in MARKED:
            raise ConfigError(f'decimal is {self.decimal!r}: it must be "," or "."')
        if self.label_smoothing and self.kind != "labels":
            raise ConfigError(f"label_smoothing applies to task.kind=labels, not to {self.kind}")

    @property
    def target(self) -> Target:
        if self.kind == "regression":
            names = self.labels if len(self.labels) > 1 else ("value",)
            return Number(self.scale or Scale(), standardised=self.standardised, names=names, decimal=self.decimal)
        if self.kind == "multilabel":
            return LabelSet(self.labels, 0.5 if self.threshold is None else self.threshold, self.delimiter)
        weights = balanced_weights(self.counts) if self.balance and self.counts else ()
        return OneLabel(self.labels, self.label_smoothing, weights)

    @property
    def problem_type(self) -> str | None:
        return self.target.problem_type

    @property
    def metric(self) -> str:  # type: ignore[override]
        return self.target.metric

    def read_labels(self, facts: Facts, *, given: Kind | None) -> None:
        """Sets the kind of target, unless it is given, and what it needs to know about the data."""
        found = facts.labels
        detected = self._detected(found, given)
        self.kind = detected.kind
        if self.kind == "labels":
            for label, (_, where) in found.items():
                self.target.encode(label, where=where, strict=False)
            self.count_labels(facts)
        elif self.kind == "regression":
            self.decimal = detected.decimal
            self.scale = _scale(found, self.decimal)
        else:
            self.delimiter = self.delimiter or detected.delimiter
            self._count_label_sets(found)

    def _detected(self, found: Found, given: Kind | None) -> Detected:
        if given is None:
            return detect(found, decimal=self.decimal)
        if given == "regression":
            return Detected(given, decimal=self.decimal or decimal_mark(found))
        return Detected(given, self.delimiter or best_delimiter(found))

    def _count_label_sets(self, found: Found) -> None:
        counts: dict[str, int] = {}
        for label, (count, _) in found.items():
            for part in split_labels(label, self.delimiter):
                counts[part] = counts.get(part, 0) + count
        if not counts:
            raise DataError("the data has no labels; give at least one to one of the examples")
        self.labels = sorted(counts)
        self.counts = [counts[label] for label in self.labels]

    # --- labels

    def target_line(self) -> str:
        if self.kind == "regression":
            comma = ", with a decimal comma" if self.decimal == "," else ""
            return f"a number{comma}: regression (task.kind=labels reads each as a label)"
        if self.kind == "multilabel":
            if not self.delimiter:
                return "lists of labels: multilabel"
            return f"labels separated by {self.delimiter!r}: multilabel (task.kind=labels reads each list as one label)"
        if len(self.labels) > 2 and all(parse_number(label) is not None for label in self.labels):
            return f"one of {len(self.labels):,} labels, which are numbers (task.kind=regression predicts a number)"
        return ""

    def checker(self) -> Checker:
        limits = self.length_limits()
        if self.kind == "regression":
            assert self.scale is not None
            return Checker(limits=limits, numbers=NumberSummary(), number_of=self._number, labels_of=lambda row: ())
        if self.kind == "multilabel":
            return Checker(
                limits=limits, several=True, labels_of=lambda row: split_labels(row.fields["label"], self.delimiter)
            )
        return Checker(limits=limits)

    def _number(self, row: Row) -> float:
        return float(self.target.encode(row.fields["label"], where=row.where)[0])

    def predicts(self) -> str:
        """In a few words."""
        what = {
            "labels": f"one of {len(self.labels):,} labels",
            "regression": "a number" if self.scale is None else f"a number ({_described(self.scale)} in training)",
            "multilabel": f"any of {len(self.labels):,} labels (threshold {self.threshold or 0.5:.3g})",
        }
        return what[self.kind]

    # --- training

    def start_training(self) -> None:
        self.threshold, self.standardised = None, self.kind == "regression"

    def finish_training(self, model: Model, rows: Iterable[Row]) -> list[str]:
        """Regression: the scale of the numbers goes into the output layer. Multilabel: the threshold is fitted to about
        half of the held-out rows, by a hash of their input; the other half judges."""
        if self.standardised and self.scale is not None:
            apply_scale(model, mean=self.scale.mean, std=self.scale.std)
            self.standardised = False
        if self.kind != "multilabel":
            return []
        held = list(rows)
        self.threshold, judging = self._fitted(model, held)
        if self.threshold is None:
            return ["threshold    0.5: there are too few held-out examples to fit it to some and judge by others"]
        fitted = len(held) - len(judging)
        return [
            f"threshold    {self.threshold:.4g}, fitted to {fitted:,} held-out examples; the scores are of the other "
            f"{len(judging):,}"
        ]

    def _fitted(self, model: Model, rows: Sequence[Row]) -> tuple[float | None, Sequence[Row]]:
        """The threshold with the best micro F1 on the rows that do not judge, and the rows that do."""
        judging = [row for row in rows if judging_half(row)]
        examples = [example for row in rows if not judging_half(row) for example in self.examples(row)]
        wanted = self.target.collate([example["label"] for example in examples]).numpy()
        if not judging or not wanted.any():
            return None, rows
        return fitted_threshold(self.logits(model, examples).sigmoid().numpy(), wanted), judging

    def judges(self, row: Row) -> bool:
        return self.threshold is None or judging_half(row)

    @property
    def judging_note(self) -> str:
        return "" if self.threshold is None else " (the half that the threshold was not fitted to)"

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Multilabel: with a threshold that is fitted to one half of the rows, on the other half."""
        if self.kind != "multilabel":
            return super().quick_evaluate(model, rows)
        threshold, judging = self._fitted(model, list(rows))
        return replace(self, threshold=threshold).evaluate(model, judging)

    def apply_temperature(self, temperature: float) -> None:
        """Keeps the predictions of a model whose logits were divided by a number."""
        if self.threshold is not None and 0 < self.threshold < 1:
            self.threshold = 1 / (1 + exp(-log(self.threshold / (1 - self.threshold)) / temperature))

    def to_dict(self) -> dict[str, Any]:
        """Without options that earlier versions did not have, at their defaults: the examples of a run are prepared for
        its options."""
        out = {name: value for name, value in super().to_dict().items() if name not in NEW or value != NEW[name]}
        return out | ({"scale": asdict(self.scale)} if self.scale is not None else {})


def balanced_weights(counts: Sequence[int]) -> list[float]:
    """1 / √count of each label, with a mean of 1 over the examples: between none and equal weight for every label."""
    roots = np.sqrt(np.array(counts, dtype=float).clip(min=1))
    return (roots.sum() ** -1 * np.sum(counts) / roots).tolist()


def judging_half(row: Row) -> bool:
    """Half of the rows, by the last bit of a hash of their input; the first bits decide what is held out."""
    return bool(input_hash(row) & 1)


def _scale(found: Found, decimal: str) -> Scale:
    """Mean and standard deviation of the labels."""
    target, values, counts = Number(decimal=decimal), list[float](), list[int]()
    for label, (count, where) in found.items():
        values.append(target.encode(label, where=where)[0])
        counts.append(count)
    if len(set(values)) < 2:
        raise DataError(f"the data has {len(set(values))} different numbers to predict; at least two are needed")
    mean = float(np.average(values, weights=counts))
    return Scale(mean, float(np.sqrt(np.average((np.array(values) - mean) ** 2, weights=counts))))


def _described(scale: Scale) -> str:
    return f"mean {scale.mean:.4g}, standard deviation {scale.std:.4g}"
