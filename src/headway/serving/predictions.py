"""Predictions of the classic tasks in the form that the routes need: mostly the task's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F

from headway.data.truncation import TruncationCounter
from headway.engine import encode_ragged
from headway.models.protocol import Model
from headway.tasks.embed import Embed
from headway.tasks.entities import entities, repaired
from headway.tasks.tag import WORD, Tag
from headway.tasks.task import Task
from headway.tasks.transcribe import Transcribe


@torch.no_grad()
def predict(task: Task, model: Model, inputs: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    match task:
        case Embed():
            return embeddings(task, model, inputs, **options)
        case Tag():
            return found_entities(task, model, inputs)
        case Transcribe():
            return list(task.transcripts(model, inputs, options))
    return task.predict(model, inputs, **options)


def embeddings(task: Embed, model: Model, texts: Sequence[str], *, normalize: bool | None = None) -> list[list[float]]:
    """Without padding, whatever the lengths. `normalize`: whether vectors have length 1; None: as the model's files
    say."""
    counter: TruncationCounter = task.truncation
    ids = task.encode(texts, truncation=counter)
    found: list[list[float]] = [[]] * len(ids)
    for index, hidden in encode_ragged(cast(Any, model), ids):
        vector = task.pool(hidden[None], None).float()[0]
        unit = task.normalize if normalize is None else normalize
        found[index] = (F.normalize(vector, dim=-1) if unit else vector).tolist()
    return found


def found_entities(task: Tag, model: Model, texts: Sequence[str]) -> list[list[dict[str, Any]]]:
    """The entities of each text, with their characters and the mean probability of their tags."""
    spans = [[match.span() for match in WORD.finditer(text)] for text in texts]
    words = [[text[a:b] for a, b in own] for text, own in zip(texts, spans, strict=True)]
    readings = [task.readings(own, where=f"input {number}") for number, own in enumerate(words, 1)]
    out = []
    for text, own, found in zip(texts, spans, task.word_log_probs(model, readings), strict=True):
        best = [found[word].max(-1) if word in found else None for word in range(len(own))]
        tags = repaired(["O" if each is None else task.labels[int(each.indices)] for each in best])
        listed = []
        for entity in entities(tags):
            inside = [each.values for each in best[entity.start : entity.end] if each is not None]
            start, end = own[entity.start][0], own[entity.end - 1][1]
            score = float(torch.stack(inside).exp().mean()) if inside else 0.0
            listed.append(
                {"entity_group": entity.type, "score": score, "word": text[start:end], "start": start, "end": end}
            )
        out.append(listed)
    return out
