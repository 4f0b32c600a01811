"""What the tasks that give a whole input one label share, whatever is read: labels, loss, answer, score.

A task of this kind says how an input becomes an example, and examples a batch.
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
from headway.tasks.distributed import distributed_map
from headway.tasks.task import Example, Task, batches, device_of

ROWS = 64  # inputs answered at once


@dataclass
class Classification(Task):
    metric: ClassVar[str] = "accuracy"

    labels: list[str] = field(default_factory=list)  # in the order of the model's outputs
    counts: list[int] = field(default_factory=list)  # how often each label is in the training data
    label_smoothing: float = 0.0

    @abstractmethod
    def read(self, value: Any, *, where: str) -> Example:
        """An input as arrays, without its label."""

    def count_labels(self, rows: RowReader) -> None:
        """The labels there are, by name, so that the order of the data does not matter."""
        found = Counter(row.fields["label"] for row in rows())
        if len(found) < 2:
            only = f", {next(iter(found))!r}" if found else ""
            raise DataError(f"the data has {len(found)} label{only}; to tell apart, at least two are needed")
        self.labels = sorted(found)
        self.counts = [found[label] for label in self.labels]

    # --- learning

    def examples(self, row: Row) -> list[Example]:
        label = label_index(self.labels, row.fields["label"], where=row.where)
        return [{**self.read(self.model_input(row), where=row.where), "label": np.array([label], dtype=np.int32)}]

    def targets(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """(batch,) label numbers, or nothing when the examples have none."""
        labelled = [example["label"][0] for example in examples if "label" in example]
        return {"labels": torch.tensor(labelled, dtype=torch.long)} if labelled else {}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        smoothing = self.label_smoothing if model.training else 0.0
        logits = logits_of(model, batch)  # (batch, label)
        return Loss(F.cross_entropy(logits, batch.targets["labels"], label_smoothing=smoothing, reduction="sum"))

    # --- using

    @torch.no_grad()
    def logits(self, model: nn.Module, examples: Sequence[Example]) -> Tensor:
        """(example, label). Examples of similar length share a batch; the answer is in the order they came in."""
        order = sorted(range(len(examples)), key=lambda i: self.length(examples[i]))

        def work(chunk: Sequence[int]) -> Tensor:
            batch = self.collate([examples[i] for i in chunk], seeds=[()] * len(chunk), where=[])
            return logits_of(model, batch.to(device_of(model))).float().cpu()

        out = torch.zeros(len(examples), len(self.labels))
        for chunk, found in distributed_map(batches(order, ROWS), work):
            out[chunk] = found
        return out

    def predict(self, model: nn.Module, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The likeliest label and the probability of each, likeliest first; `top` keeps that many of them."""
        top = options.pop("top", None)
        if options:
            raise InputError(f"{self.name} has no option {next(iter(options))!r}; known: top")
        if top is not None and not (isinstance(top, int) and top > 0):
            raise InputError(f"top: {top!r}; a whole number above 0 is needed")
        examples = [self.read(value, where=f"input {number}") for number, value in enumerate(inputs, 1)]
        out = []
        for row in self.logits(model, examples).softmax(-1):
            order = row.argsort(descending=True, stable=True)[:top].tolist()
            scores = {self.labels[index]: float(row[index]) for index in order}
            out.append({"label": self.labels[order[0]], "score": float(row[order[0]]), "scores": scores})
        return out

    def evaluate(self, model: nn.Module, rows: Iterable[Row]) -> dict[str, float]:
        """Accuracy, F1 averaged over labels, loss; and the accuracy of always giving the commonest label."""
        examples = [example for row in rows for example in self.examples(row)]
        if not examples:
            raise DataError(f"{self.name}: there are no examples to evaluate on")
        logits, wanted = self.logits(model, examples), self.targets(examples)["labels"]
        loss = float(F.cross_entropy(logits, wanted))
        return {**label_scores(logits.argmax(-1).numpy(), wanted.numpy()), "loss": loss}


def logits_of(model: nn.Module, batch: Batch) -> Tensor:
    """What an encoder calls its inputs a decoder calls ids: the first argument of both."""
    inputs = dict(batch.inputs)
    return model(inputs.pop("inputs"), **inputs).logits


def label_index(labels: Sequence[str], label: str, *, where: str) -> int:
    if label not in labels:
        known = ", ".join(map(repr, labels[:20])) + (" …" if len(labels) > 20 else "")
        raise DataError(f"{where}: the label {label!r} is not one of those learned ({known})")
    return labels.index(label)


def label_scores(found: np.ndarray, wanted: np.ndarray) -> dict[str, float]:
    """Macro F1 averages over the labels that occur, found or wanted, as scikit-learn and torchmetrics do. Written out:
    the library takes longer to import than a small evaluation takes to run."""
    f1 = []
    for label in np.union1d(found, wanted):
        right = int(((found == label) & (wanted == label)).sum())
        f1.append(2 * right / int((found == label).sum() + (wanted == label).sum()))
    return {
        "accuracy": float((found == wanted).mean()),
        "macro_f1": float(np.mean(f1)),
        "majority": float(np.bincount(wanted).max() / len(wanted)),
    }
