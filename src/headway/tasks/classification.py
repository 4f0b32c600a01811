"""What the tasks that classify an input share, text or image: labels, loss, prediction, scores.

A task of this kind adds how an input becomes an example, and examples a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from headway.data.batch import Batch, Loss
from headway.data.facts import Facts, Label
from headway.data.read import Row
from headway.errors import DataError, InputError
from headway.generation.box_settings import threshold_of
from headway.kinds.predictions import PredictionKind
from headway.models.protocol import Model
from headway.tasks.distributed import chunks, map_by_length
from headway.tasks.evaluated import Evaluated
from headway.tasks.label_predictions import label_predictions
from headway.tasks.targets import OneLabel, Target
from headway.tasks.task import Example, Task

BATCH = 64  # inputs of one forward pass


@dataclass
class Classification(Task):
    metric: ClassVar[str] = "accuracy"
    tokens_at_once: ClassVar[int | None] = None  # of one forward pass, with padding
    rows_at_once: ClassVar[int] = 0  # evaluated together; 0: all, batched by length

    labels: list[str] = field(default_factory=list, repr=False)  # in the order of the logits
    counts: list[int] = field(default_factory=list, repr=False)  # examples of each label in the training data
    label_smoothing: float = 0.0

    @classmethod
    def labels_in(cls, row: Row) -> Iterable[Label]:
        label = row.fields["label"]
        return [label if isinstance(label, str) else tuple(label)]

    def count_labels(self, facts: Facts) -> None:
        """Sets `labels`, sorted by name so that they do not depend on the order of the data, and `counts`."""
        found = {str(label): count for label, (count, _) in facts.labels.items()}
        if len(found) < 2:
            only = f", {next(iter(found))!r}" if found else ""
            raise DataError(f"the data has {len(found)} label{only}; at least two are needed")
        self.labels = sorted(found)
        self.counts = [found[label] for label in self.labels]

    @property
    def target(self) -> Target:
        """What the logits mean."""
        return OneLabel(self.labels, self.label_smoothing)

    @property
    def prediction_kind(self) -> PredictionKind:  # type: ignore[override]
        return self.target.kind

    # --- training

    def examples(self, row: Row, *, strict: bool = True) -> list[Example]:
        label = self.target.encode(row.fields["label"], where=row.where, strict=strict)
        return [{**self.read(self.model_input(row), where=row.where), "label": label}]

    def targets(self, examples: Sequence[Example]) -> dict[str, Tensor]:
        """A row for each example, or nothing for examples without labels."""
        labels = [example["label"] for example in examples if "label" in example]
        return {"labels": self.target.collate(labels)} if labels else {}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        output, labels = output_of(model, batch), batch.targets["labels"]
        total = self.target.loss(output.logits, labels, training=model.training)
        members = getattr(output, "members", {}) if model.training else {}  # of an ensemble: each learns alone
        if not members:
            return Loss(total)
        each = {name: self.target.loss(logits, labels, training=True) for name, logits in members.items()}
        return Loss(sum(each.values(), total), {"network": total, **each})

    # --- inference

    @torch.no_grad()
    def logits(self, model: nn.Module, examples: Sequence[Example]) -> Tensor:
        """(example, output)"""

        rows = self._map_outputs(model, examples, lambda output: output.logits)
        return torch.stack(rows) if rows else torch.zeros(0, self.target.outputs)

    @torch.no_grad()
    def part_logits(self, model: nn.Module, examples: Sequence[Example]) -> Tensor:
        """(part, example, output), of the parts of an ensemble."""
        rows = self._map_outputs(model, examples, lambda output: torch.stack([*output.members.values()], dim=1))
        return torch.stack(rows, dim=1)

    def _map_outputs(
        self, model: nn.Module, examples: Sequence[Example], read: Callable[[Any], Tensor]
    ) -> list[Tensor]:
        """What `read` takes from the output for each example."""

        def work(batch: Sequence[Example]) -> list[Tensor]:
            return list(read(output_of(model, self.batch(batch, model))).float().cpu())

        return map_by_length(examples, work, length=self.length, size=BATCH, tokens=self.tokens_at_once)

    def predict(self, model: Model, inputs: Sequence[Any], **options: Any) -> list[Any]:
        """The most probable label and the probability of every label, highest first; `top` keeps that many of them.
        With `threshold`, a label whose probability is lower is None; of several labels those above it are found."""
        self.refuse_options(options, *self.target.options)
        top = options.get("top")
        if top is not None and not (isinstance(top, int) and top > 0):
            raise InputError(f"top is {top!r}: it must be a whole number above 0")
        examples = [self.read(value, where=f"input {number}") for number, value in enumerate(inputs, 1)]
        return self.target.answers(self.logits(model, examples), top=top, threshold=threshold_of(options, None))

    def predictions(self, model: Model, rows: Iterable[Row], **options: Any) -> Evaluated:
        """A label that the model does not have raises."""
        self.refuse_options(options)
        kept = list(rows)
        return label_predictions(self.target, kept, *self._predicted(model, kept, strict=True))

    def quick_evaluate(self, model: Model, rows: Iterable[Row]) -> dict[str, float]:
        """As `evaluate`, but a label that occurs in the held-out part alone counts as an error of the model."""
        return self.target.scores(*self._predicted(model, list(rows), strict=False))

    def _predicted(self, model: Model, rows: Sequence[Row], *, strict: bool) -> tuple[Tensor, list[np.ndarray]]:
        """(logits, labels) of the rows."""
        if not rows:
            raise DataError(f"{self.name}: there are no examples to evaluate on")
        labels, logits = list[np.ndarray](), list[Tensor]()
        for part in chunks(rows, self.rows_at_once or len(rows)):
            examples = [example for row in part for example in self.examples(row, strict=strict)]
            labels += [example["label"] for example in examples]
            logits.append(self.logits(model, examples))
        return torch.cat(logits), labels


def output_of(model: nn.Module, batch: Batch) -> Any:
    """What the model computes for a batch."""
    inputs: dict[str, Any] = dict(batch.inputs)
    if model.training and model.pools_one_token:
        inputs["pooled_only"] = True
    return model(inputs.pop("inputs"), **inputs)
