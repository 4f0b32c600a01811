"""What the tasks that predict one label for an input share, text or image: labels, loss, prediction, scores.

A task of this kind adds how an input becomes an example, and examples a batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.dataset import RowReader
from headway.data.read import Row
from headway.errors import DataError, InputError
from headway.models.protocol import Model
from headway.tasks.distributed import map_by_length
from headway.tasks.task import Example, Task

BATCH = 64  # inputs of one forward pass


@dataclass
class Classification(Task):
    metric: ClassVar[str] = "accuracy"

    labels: list[str] = field(default_factory=list, repr=False)  # in the order of the logits
    counts: list[int] = field(default_factory=list, repr=False)  # examples of each label in the training data
    label_smoothing: float = 0.0

    @abstractmethod
    def read(self, value: Any, *, where: str) -> Example:
        """The arrays of an input, without its label."""

    def count_labels(self, rows: RowReader) -> None:
        """Sets `labels`, sorted by name so that they do not depend on the order of the data, and `counts`."""
        found = Counter(row.fields["label"] for row in rows())
        if len(found) < 2:
            only = f", {next(iter(found))!r}" if found else ""
            raise DataError(f"the data has {len(found)} label{only}; at least two are needed")
        self.labels = sorted(found)
        self.counts = [found[label] for label in self.labels]

    # --- training

    def examples(self, row: Row) -> list[Example]:
        label = label_index(self.labels, row.fields["label"], where=row.where)
        return [{**self.read(self.model_input(row), where=row.where), "label": np.array([label], dtype=np.int32)}]

    def targets(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """(batch,) label indices, or nothing for examples without labels."""
        labelled = [example["label"][0] for example in examples if "label" in example]
        return {"labels": torch.tensor(labelled, dtype=torch.long)} if labelled else {}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        smoothing = self.label_smoothing if model.training else 0.0
        logits = logits_of(model, batch)  # (batch, label)
        return Loss(F.cross_entropy(logits, batch.targets["labels"], label_smoothing=smoothing, reduction="sum"))

    # --- inference

    @torch.no_grad()
    def logits(self, model: nn.Module, examples: Sequence[Example]) -> Tensor:
        """(example, label)"""

        def work(batch: Sequence[Example]) -> list[Tensor]:
            return list(logits_of(model, self.batch(batch, model)).float().cpu())

        rows = map_by_length(examples, work, length=self.length, size=BATCH)
        return torch.stack(rows) if rows else torch.zeros(0, len(self.labels))

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The most probable label and the probability of every label, highest first; `top` keeps that many of them."""
        self.refuse_options(options, "top")
        top = options.get("top")
        if top is not None and not (isinstance(top, int) and top > 0):
            raise InputError(f"top is {top!r}: it must be a whole number above 0")
        examples = [self.read(value, where=f"input {number}") for number, value in enumerate(inputs, 1)]
        out = []
        for row in self.logits(model, examples).softmax(-1):
            order = row.argsort(descending=True, stable=True)[:top].tolist()
            scores = {self.labels[index]: float(row[index]) for index in order}
            out.append({"label": self.labels[order[0]], "score": float(row[order[0]]), "scores": scores})
        return out

    def evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """Accuracy, macro F1 and loss; `majority` is the accuracy of always predicting the most frequent label."""
        examples = [example for row in rows for example in self.examples(row)]
        if not examples:
            raise DataError(f"{self.name}: there are no examples to evaluate on")
        logits, wanted = self.logits(model, examples), self.targets(examples)["labels"]
        loss = float(F.cross_entropy(logits, wanted))
        return {**label_scores(logits.argmax(-1).numpy(), wanted.numpy()), "loss": loss}


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    """The model's logits for a batch."""
    inputs = dict(batch.inputs)
    return model(inputs.pop("inputs"), **inputs).logits


def label_index(labels: Sequence[str], label: str, *, where: str) -> int:
    if label not in labels:
        known = ", ".join(map(repr, labels[:20])) + (" …" if len(labels) > 20 else "")
        raise DataError(f"{where}: label {label!r} is not one of the model's labels ({known})")
    return labels.index(label)


def label_scores(found: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """Macro F1 is the mean over the labels that occur, predicted or true, as in scikit-learn and torchmetrics. Computed
    here because the library takes longer to import than a small evaluation takes."""
    f1 = []
    for label in np.union1d(found, wanted):
        right = int(((found == label) & (wanted == label)).sum())
        f1.append(2 * right / int((found == label).sum() + (wanted == label).sum()))
    return {
        "accuracy": float((found == wanted).mean()),
        "macro_f1": float(np.mean(f1)),
        "majority": float(np.bincount(wanted).max() / len(wanted)),
    }
