"""Why this answer: what each layer would have said, which heads matter for the chosen score, and what
every part wrote into it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headway.explain import story
from headway.explain.choices import Names, short
from headway.inspect.attribution import Contribution, attribute
from headway.inspect.importance import Score, head_importance, logit
from headway.inspect.intervene import ablate
from headway.inspect.lens import logit_lens

WORK = 600_000_000  # parameters times passes: how many heads are taken out one by one …
FEWEST = 12  # … but at least these; of more heads, those with the largest gradients
GUESSES = 3

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Question:
    """The one score that an explanation is about."""

    text: str
    token: int
    position: int


def question(output: story.Output, *, first: bool) -> Question | None:
    """The token after a text, or the first one of an answer; the label; the first tag that is not O; the answer's
    start. None where there is nothing to choose."""
    if not output.rows:
        return None
    row = output.rows[0 if first else -1] if output.kind == "next" else output.rows[0]
    if output.kind == "tags":
        row = next((each for each in output.rows if _chosen(each) != "O"), row)
    assert row.chosen is not None
    if output.kind == "span":
        return Question(f"start at {_quoted(_chosen(row))}", 0, row.chosen)
    place = "" if output.kind == "classes" else f" {'after' if output.kind == 'next' else 'at'} {_quoted(row.label)}"
    return Question(f"{_quoted(_chosen(row))}{place}", row.chosen, row.at or 0)


def lens(model: nn.Module, inputs: Inputs, names: Names) -> list[story.LensLayer]:
    layers = []
    for number, layer in enumerate(logit_lens(model, inputs, top=GUESSES)):
        ids, odds = layer.ids[0], layer.probabilities[0]  # (token, top), or (top) where the whole is labelled
        rows = [
            [story.Guess(text, short(chance)) for text, chance in zip(names(row), chances, strict=True)]
            for row, chances in zip(
                ids.reshape(-1, ids.shape[-1]).tolist(), odds.reshape(-1, odds.shape[-1]).tolist(), strict=True
            )
        ]
        layers.append(story.LensLayer(number - 1, rows))
    return layers


def heads(model: nn.Module, inputs: Inputs, asked: Question) -> list[story.HeadScore]:
    """The head whose absence changes the score most comes first."""
    most = max(FEWEST, WORK // sum(parameter.numel() for parameter in model.parameters()))
    score = logit(asked.token, position=asked.position)
    ranked = head_importance(model, inputs, score, method="gradient")
    with torch.no_grad():
        whole = score(model(**inputs)).item()
    found = [
        story.HeadScore(
            name=row.part,
            layer=_layer(row.part),
            head=row.head,
            change=short(whole - _without(model, inputs, score, part=row.part, head=row.head)),
            gradient=short(row.change),
        )
        for row in ranked[:most]
    ]
    return sorted(found, key=lambda row: -abs(row.change))


@torch.no_grad()
def _without(model: nn.Module, inputs: Inputs, score: Score, *, part: str, head: int) -> float:
    with ablate(model, part, heads=[head]):
        return score(model(**inputs)).item()


def attribution(model: nn.Module, inputs: Inputs, asked: Question) -> story.Attribution:
    found = attribute(model, inputs, asked.token, position=asked.position)
    parts: dict[str, float] = {}
    for part in found.parts:
        name = _part_name(part)
        parts[name] = parts.get(name, 0.0) + part.value
    return story.Attribution(asked.text, short(found.logit), [(name, short(value)) for name, value in parts.items()])


def _part_name(part: Contribution) -> str:
    """layer 3, head 2; biases of all kinds count as one part."""
    kind = part.name.rpartition(".")[2]
    if part.head is not None:
        cross = " across" if kind == "cross" else ""
        return f"layer {_layer(part.name)}{cross}, head {part.head}"
    if kind == "feedforward":
        return f"layer {_layer(part.name)}, feed-forward"
    return "embedding" if kind == "embedding" else "biases"


def _layer(name: str) -> int:
    found = re.search(r"blocks\.(\d+)", name)
    assert found is not None
    return int(found[1])


def _quoted(text: str) -> str:
    return f"“{text.strip() or text}”"


def _chosen(row: story.Row) -> str:
    return next(one.text for one in row.candidates if one.id == row.chosen)
