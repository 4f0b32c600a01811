"""The story of a detector: which parts of the picture each found object attends to.

Only the attention of the queries that found something is kept, so that a page holds every layer; of a detector without
a decoder (YOLOS) these are the detection tokens, in self-attention."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from headway.bundle import Bundle
from headway.explain import story, tensors
from headway.explain.choices import choice, labels
from headway.explain.facts import model_facts
from headway.explain.model_map import AttentionInfo, StackInfo, attentions
from headway.explain.picture_patches import patches
from headway.explain.size_budget import CANDIDATE, StorySizes, select_layers
from headway.inspect import record, record_contexts
from headway.layers.boxes import to_corners
from headway.models.outputs import DetectionOutput
from headway.preprocess.draw_boxes import draw_boxes
from headway.preprocess.image import stored_image
from headway.tasks.detect import best_queries

MOST_OBJECTS = 24
MOST_VECTORS = 6000  # of a picture, however small the model
SHOWN_ANYWAY = 3  # objects, if none reaches the threshold


@dataclass(frozen=True)
class FoundObject:
    """One object: the query that found it, its label, its score, its box as shares of the picture."""

    query: int
    label: int
    score: float
    corners: tuple[float, float, float, float]


class QueryAttention(AttentionInfo):
    """Of the queries alone, to the vectors of the picture."""

    @property
    def keys(self) -> str:
        return "source"


class ObjectSizes(StorySizes):
    def candidates(self) -> float:
        """Ten for each object: there is no logit lens."""
        return 10 * CANDIDATE * self.lengths["target"]


def collect_detection(
    bundle: Bundle, task: Any, value: Any, *, layers: Sequence[int] | None, title: str
) -> story.Story:
    model = bundle.model
    image = stored_image(value, where="the input")
    inputs = task.batch([{"image": image}], model).inputs
    with torch.no_grad():
        output: DetectionOutput = model(**inputs)
    found, note = _objects(task, output)
    grid, before, behind = _layout(model, inputs["inputs"])
    source = _picture(task, image, found, grid, before=before, behind=behind)
    names = [f"{number}:{task.labels[one.label]}" for number, one in enumerate(found, 1)]
    target = story.Sequence("objects", [story.Token(name, one.query) for name, one in zip(names, found, strict=True)])
    infos = _attentions(model)
    sizes = ObjectSizes(infos, {"source": len(source.tokens), "target": len(found)}, {})
    kept = select_layers(sizes, layers, most=MOST_VECTORS)
    first = 0 if model.shape == "detector" else len(source.tokens) - behind  # of the queries among the tokens
    rows = [first + one.query for one in found]
    taps = tensors.attention_taps(infos, kept)
    with torch.no_grad(), record(model, taps, queries=rows) as recorded, record_contexts(model, "*") as contexts:
        model(**inputs)
    for name, context in contexts.items():
        if context.memory_bias is not None:
            contexts[name] = replace(context, memory_bias=context.memory_bias[:, :, rows])
    counts = Counter(task.labels[one.label] for one in found)
    return story.Story(
        title=title,
        model=model_facts(bundle),
        sequences={"source": source, "target": target},
        task=task.name,
        note=[*note, *kept.note],
        attention=[tensors.attention(each, recorded, contexts, kept) for each in infos if each.layer in kept.weights],
        output=story.OutputView(
            "objects",
            _rows(task, output, found, names),
            ", ".join(f"{count} {label}" for label, count in counts.most_common()),
        ),
    )


def _objects(task: Any, output: DetectionOutput) -> tuple[list[FoundObject], list[str]]:
    """The best first, with notes on what is left out."""
    assert output.logits is not None and output.boxes is not None
    logits, boxes = output.logits[0].float().cpu(), to_corners(output.boxes[0].float().cpu()).clamp(0, 1)
    query, label, score = best_queries(logits, labels=len(task.labels))
    seen = dict[int, FoundObject]()
    for one, kind, value in zip(query.tolist(), label.tolist(), score.tolist(), strict=True):
        if one not in seen:
            left, top, right, bottom = boxes[one].tolist()
            seen[one] = FoundObject(one, kind, value, (left, top, right, bottom))
    ranked = list(seen.values())
    found = [one for one in ranked if one.score >= task.threshold]
    if not found:
        note = f"No object has a score of {task.threshold:g}; the best {SHOWN_ANYWAY} are shown."
        return ranked[:SHOWN_ANYWAY], [note]
    if len(found) > MOST_OBJECTS:
        return found[:MOST_OBJECTS], [f"The best {MOST_OBJECTS} of {len(found)} objects are shown."]
    return found, []


def _layout(model: Any, images: Tensor) -> tuple[tuple[int, int], int, int]:
    """(rows, columns) of the picture's vectors, and how many tokens there are before and behind them."""
    if model.shape == "detector":
        with torch.no_grad():
            grid = model.encoder.embed(images).grid
        return (grid.rows.shape[1], grid.columns.shape[1]), 0, 0
    patches = model.config.embedding
    return patches.grid((images.shape[2], images.shape[3])), len(patches.prefix), patches.detection_tokens


def _picture(
    task: Any, image: Any, found: Sequence[FoundObject], grid: tuple[int, int], *, before: int, behind: int
) -> story.Sequence:
    from PIL import Image

    pixels = task.image_processor.pixels(image, where="the input")
    size = torch.tensor([pixels.shape[1], pixels.shape[0]] * 2)
    objects = [
        {"label": task.labels[one.label], "box": (torch.tensor(one.corners) * size).tolist(), "caption": str(number)}
        for number, one in enumerate(found, 1)
    ]
    grey = pixels.shape[2] == 1
    drawn = draw_boxes(Image.fromarray(pixels[:, :, 0] if grey else pixels), objects, labels=task.labels)
    queries = [f"query {number}" for number in range(behind)]
    return patches("picture", drawn, grid, before=["class"] * before, behind=queries)


def _attentions(model: Any) -> list[AttentionInfo]:
    """The cross-attention of each layer; of a model without a decoder, the self-attention."""
    every = attentions(model)
    chosen = [each for each in every if each.cross] or every
    part = StackInfo(chosen[0].stack.part, "target", "source")
    return [QueryAttention(part, each.name, each.layer, each.module) for each in chosen]


def _rows(
    task: Any, output: DetectionOutput, found: Sequence[FoundObject], names: Sequence[str]
) -> list[story.RowView]:
    """The classes of each object. Where each class has a sigmoid, its logit is against 0: the softmax of both is the
    sigmoid."""
    assert output.logits is not None
    rows = []
    for at, (one, name) in enumerate(zip(found, names, strict=True)):
        logits = output.logits[0, one.query]
        if len(logits) > len(task.labels):
            rows.append(choice(logits, labels([*task.labels, "no object"]), label=name, at=at))
            continue
        label = task.labels[one.label]
        pair = torch.stack([logits[one.label], logits.new_zeros(())])
        rows.append(choice(pair, labels([label, f"not {label}"]), label=name, at=at, chosen=0))
    return rows
