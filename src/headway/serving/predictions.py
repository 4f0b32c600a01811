"""Predictions in the form that the routes need: of some kinds another than that of `predict`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F

from headway.engine import encode_ragged
from headway.kinds.predictions import EntitiesPrediction, PredictionKind, TranscriptPrediction, VectorPrediction
from headway.models.protocol import Model
from headway.tasks.task import Task


@torch.no_grad()
def predict(task: Task, model: Model, inputs: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    form = FORMS.get(type(task.prediction_kind))
    method = (form and form(task)) or task.predict
    return list(method(model, inputs, **options))


def vectors(task: Any) -> Callable[..., Any] | None:
    """Without padding, whatever the lengths. `normalize`: whether vectors have length 1; None: as the model's files
    say."""
    if task.input_kind.columns == ("text",):  # one word of a text
        return None

    def embedded(model: Model, texts: Sequence[str], *, normalize: bool | None = None) -> list[list[float]]:
        ids = task.encode(texts, truncation=task.truncation)
        found: list[list[float]] = [[]] * len(ids)
        for index, hidden in encode_ragged(cast(Any, model), ids):
            vector = task.pool(hidden[None], None).float()[0]
            unit = task.normalize if normalize is None else normalize
            found[index] = (F.normalize(vector, dim=-1) if unit else vector).tolist()
        return found

    return embedded


FORMS: dict[type[PredictionKind], Callable[[Any], Callable[..., Any] | None]] = {
    VectorPrediction: vectors,
    EntitiesPrediction: lambda task: getattr(task, "entity_groups", None),
    TranscriptPrediction: lambda task: lambda model, inputs, **options: task.transcripts(model, inputs, options),
}
