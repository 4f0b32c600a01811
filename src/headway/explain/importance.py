"""The explanation of one logit: the logit lens, head importance, direct logit attribution, and for models without a
residual stream integrated gradients."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.explain import story
from headway.explain.choices import IdsToText, round_float32
from headway.inspect.attribution import Contribution, attribute
from headway.inspect.importance import Score, head_importance, logit
from headway.inspect.integrated import integrated_gradients
from headway.inspect.intervene import ablate
from headway.inspect.lens import logit_lens
from headway.models.protocol import Model

ABLATION_BUDGET = 600_000_000  # parameters times forward passes: bounds the number of ablated heads
MIN_ABLATED = 12  # heads, whatever the budget; those with the largest gradients
LENS_TOP = 3

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class ExplainedLogit:
    """The logit that is explained."""

    text: str
    token: int
    position: int


def target_of(output: story.OutputView, *, first: int | None) -> ExplainedLogit | None:
    """The next token after a text, or the one of row `first` of an answer; the label or number; the first tag that is
    not O; the start of the span. None without logits."""
    if not output.rows:
        return None
    row = output.rows[-1 if first is None else first] if output.kind == "next" else output.rows[0]
    if output.kind == "tags":
        row = next((each for each in output.rows if _chosen(each) != "O"), row)
    assert row.chosen is not None
    if output.kind == "labels":
        return ExplainedLogit(_quoted(row.label), max(one.id for one in row.candidates), row.at or 0)
    if output.kind == "span":
        return ExplainedLogit(f"start at {_quoted(_chosen(row))}", 0, row.chosen)
    where = (
        ""
        if output.kind in ("classes", "number")
        else f" {'after' if output.kind == 'next' else 'at'} {_quoted(row.label)}"
    )
    return ExplainedLogit(f"{_quoted(_chosen(row))}{where}", row.chosen, row.at or 0)


def lens(model: Model, inputs: Inputs, to_text: IdsToText) -> list[story.LensLayerView]:
    layers = []
    for number, layer in enumerate(logit_lens(model, inputs, top=LENS_TOP)):
        ids, probabilities = layer.ids[0], layer.probabilities[0]  # (token, top), or (top) with a classification head
        rows = [
            [story.Guess(text, round_float32(value)) for text, value in zip(to_text(row), values, strict=True)]
            for row, values in zip(
                ids.reshape(-1, ids.shape[-1]).tolist(),
                probabilities.reshape(-1, probabilities.shape[-1]).tolist(),
                strict=True,
            )
        ]
        layers.append(story.LensLayerView(number - 1, rows))
    return layers


def heads(model: Model, inputs: Inputs, target: ExplainedLogit) -> list[story.HeadScore]:
    """Largest change first."""
    most = max(MIN_ABLATED, ABLATION_BUDGET // sum(parameter.numel() for parameter in model.parameters()))
    score = logit(target.token, position=target.position)
    ranked = head_importance(model, inputs, score, method="gradient")
    with torch.no_grad():
        full = score(model(**inputs)).item()
    found = [
        story.HeadScore(
            name=row.part,
            layer=_layer(row.part),
            head=row.head,
            change=round_float32(full - _ablated(model, inputs, score, part=row.part, head=row.head)),
            gradient=round_float32(row.change),
        )
        for row in ranked[:most]
    ]
    return sorted(found, key=lambda row: -abs(row.change))


@torch.no_grad()
def _ablated(model: Model, inputs: Inputs, score: Score, *, part: str, head: int) -> float:
    with ablate(model, part, heads=[head]):
        return score(model(**inputs)).item()


def attribution(model: Model, inputs: Inputs, target: ExplainedLogit) -> story.AttributionView:
    found = attribute(model, inputs, target.token, position=target.position)
    parts: dict[str, float] = {}
    for part in found.parts:
        name = _part_name(part)
        parts[name] = parts.get(name, 0.0) + part.value
    return story.AttributionView(
        target.text, round_float32(found.logit), [(name, round_float32(value)) for name, value in parts.items()]
    )


def token_attribution(
    model: Model, inputs: Inputs, target: ExplainedLogit, sequences: Mapping[str, story.Sequence]
) -> story.AttributionView:
    """What each token adds, of every sequence in the order in which the model embeds them."""
    found = integrated_gradients(model, inputs, target.token, position=target.position)
    several = len(found.tokens) > 1
    parts = [("no tokens (all embeddings zero)", round_float32(found.baseline))]
    for (name, sequence), values in zip(sequences.items(), found.tokens, strict=True):
        for number, (token, value) in enumerate(zip(sequence.tokens, values, strict=True)):
            parts.append(
                (f"{name} {number}: {token.text}" if several else f"{number}: {token.text}", round_float32(value))
            )
    return story.AttributionView(target.text, round_float32(found.logit), parts, method="integrated")


PARTS = {
    "embedding": "embedding",
    "ngrams": "n-grams of tokens (linear)",
    "convolution": "convolutions over tokens",
}


def _part_name(part: Contribution) -> str:
    """For example "layer 3, head 2"; all biases are one part."""
    kind = part.name.rpartition(".")[2]
    if part.head is not None:
        cross = " cross-attention" if kind == "cross" else ""
        return f"layer {_layer(part.name)}{cross}, head {part.head}"
    if kind == "feedforward":
        return f"layer {_layer(part.name)}, feed-forward"
    return PARTS.get(kind, "biases")


def _layer(name: str) -> int:
    found = re.search(r"blocks\.(\d+)", name)
    assert found is not None
    return int(found[1])


def _quoted(text: str) -> str:
    return f"“{text.strip() or text}”"


def _chosen(row: story.RowView) -> str:
    return next(one.text for one in row.candidates if one.id == row.chosen)
