"""From a model and an input to the story of its answer: one pass on the fast kernel, heard at the taps;
all numbers are the model's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import importance, story, tensors
from headway.explain.choices import labels, vocabulary
from headway.explain.decoder_inputs import ask_decoder, ask_translator, generation_of, go_on
from headway.explain.encoder_inputs import Asked, ask_encoder, shorten
from headway.explain.facts import facts, kind_of, name_of
from headway.explain.model_map import places, sides
from headway.explain.size_budget import Needs, keep
from headway.inspect import record
from headway.inspect.parts import evaluating
from headway.models.decoder import Decoder
from headway.models.recurrent import RecurrentEncoderDecoder
from headway.tasks.default import default_task
from headway.tasks.generate import Generate
from headway.tasks.task import Task
from headway.tasks.translate import Translate

TITLE = 80  # characters
STEPS = 16  # tokens a decoder goes on for


def collect(
    bundle: Bundle,
    given: Any,  # a text, or what else the model's task takes
    *,
    against: str | None = None,  # another answer: a continuation, a target text, a label
    layers: Sequence[int] | None = None,  # to be kept in full
    first: int | None = None,  # this many tokens of a text that is too long
    last: int | None = None,
    steps: int = STEPS,
) -> story.Story:
    task = bundle.task or default_task(bundle.config, bundle.tokenizer, labels=bundle.labels)
    value = task.parse_input(given) if task is not None and isinstance(given, str) else given
    shown = shorten(task, value, first=first, last=last)
    with evaluating(bundle.model):
        asked = _ask(bundle, task, shown, against=against)
        if shown is not value and shown != value:
            asked = replace(asked, note=[*asked.note, _shortened(first, last)])
        if isinstance(bundle.model, RecurrentEncoderDecoder):
            return _recurrent(bundle, task, asked, title=_title(value))
        return _transformer(bundle, task, asked, layers=layers, steps=steps, title=_title(value))


def _ask(bundle: Bundle, task: Task | None, value: Any, *, against: str | None) -> Asked:
    match task:
        case Generate():
            return ask_decoder(bundle, task, value, against=against)
        case Translate():
            return ask_translator(bundle, task, value, against=against)
        case Task():
            return ask_encoder(bundle, task, value, against=against)
    if isinstance(bundle.model, Decoder) and bundle.tokenizer is None and bundle.model.head is not None:
        return ask_decoder(bundle, None, value, against=against)
    raise InputError(f"{name_of(bundle)}: no task fits this {bundle.family} model; train it for one with --start")


def _transformer(
    bundle: Bundle, task: Task | None, asked: Asked, *, layers: Sequence[int] | None, steps: int, title: str
) -> story.Story:
    model = bundle.model
    found, parts = places(model), sides(model)
    widths = {side.sequence: side.model.config.stack.block.width for side in parts}
    kept = keep(Needs(found, asked.lengths, widths), layers)
    wanted = [name for side in parts for name in tensors.taps(side, found, kept)]
    with torch.no_grad(), record(model, wanted) as heard:
        output = model(**asked.inputs)
    told = asked.tell(output)
    attention = [tensors.attention(place, heard, kept) for place in found if place.layer in kept.weights]
    about = importance.question(told, first="target" in asked.sequences)
    own = getattr(task, "labels", None)
    names = vocabulary(bundle.tokenizer) if own is None else labels(own)
    return story.Story(
        title=title,
        model=story.Model(name_of(bundle), bundle.family, kind_of(bundle.config), facts(bundle)),
        sequences=asked.sequences,
        task=None if task is None else task.name,
        note=[*asked.note, *kept.note],
        embedding=[tensors.embedding(side, heard) for side in parts] if kept.embedding else [],
        attention=attention,
        stream=[part for side in parts for part in tensors.stream(side, heard)],
        output=told,
        lens=importance.lens(model, asked.inputs, names) if told.kind not in ("vector", "span") else None,
        heads=None if about is None else importance.heads(model, asked.inputs, about),
        attribution=None if about is None else importance.attribution(model, asked.inputs, about),
        generation=_generation(bundle, told, asked, attention, steps=steps),
    )


def _generation(
    bundle: Bundle, told: story.Output, asked: Asked, attention: list[story.Attention], *, steps: int
) -> story.Generation | None:
    if told.kind != "next":
        return None
    if isinstance(bundle.model, Decoder):
        return go_on(bundle, asked.inputs["inputs"][0].tolist(), bundle.tokenizer, steps=steps)
    crossing = [each for each in attention if each.kind == "cross"]
    return generation_of(told, crossing[-1] if crossing else None)


def _recurrent(bundle: Bundle, task: Task | None, asked: Asked, *, title: str) -> story.Story:
    """Two readings by one embedding, source and target, and the alignment between them."""
    model = bundle.model
    taps = ["embedding.token", "embedding.sum", "cross.weights"]
    with torch.no_grad(), record(model, taps) as heard:
        output = model(**asked.inputs)
    told = asked.tell(output)
    weights = tensors.array(heard["cross.weights"][0][0])  # (1, target, source)
    alignment = story.Attention(
        name="cross",
        stack="decoder",
        layer=0,
        kind="additive",
        queries="target",
        keys="source",
        causal=False,
        scale=1.0,
        heads=1,
        kv_heads=1,
        weights=weights,
        mask=torch.ones(weights.shape[1:], dtype=torch.bool).numpy(),
    )
    words, sums = heard["embedding.token"], heard["embedding.sum"]
    return story.Story(
        title=title,
        model=story.Model(name_of(bundle), bundle.family, "recurrent", facts(bundle)),
        sequences=asked.sequences,
        task=None if task is None else task.name,
        note=asked.note,
        embedding=[
            story.Embedding(name, tensors.array(word[0]), story.Position("none"), tensors.array(total[0]))
            for name, word, total in zip(("source", "target"), words, sums, strict=True)
        ],
        attention=[alignment],
        output=told,
        generation=generation_of(told, alignment),
    )


def _shortened(first: int | None, last: int | None) -> str:
    return f"Only the {'first' if first else 'last'} {first or last} tokens of the text were read, as asked."


def _title(value: Any) -> str:
    """The text; of a question about one, the question; of a file, its name."""
    match value:
        case Path():
            text = value.name
        case {"question": question}:
            text = str(question)
        case str() | list() | dict():
            text = str(value)
        case _:
            text = "a picture"
    return text if len(text) <= TITLE else text[: TITLE - 1] + "…"
