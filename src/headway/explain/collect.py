"""Builds the story of one output from one forward pass on the fused kernel, recorded at taps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from headway.bundle import Bundle
from headway.errors import InputError
from headway.explain import importance, story, tensors
from headway.explain.choices import labels, vocabulary
from headway.explain.decoder_inputs import continuation, generation_of, prepare_text
from headway.explain.detection import collect_detection
from headway.explain.encoder_inputs import (
    PreparedInput,
    prepare_classes,
    prepare_masks,
    prepare_span,
    prepare_tags,
    prepare_vector,
    shorten,
)
from headway.explain.facts import model_facts
from headway.explain.flow_inputs import prepare_flow
from headway.explain.model_map import attentions, stacks
from headway.explain.recurrent import collect_recurrent
from headway.explain.size_budget import StorySizes, select_layers
from headway.explain.sound_inputs import prepare_sound
from headway.inspect import record, record_contexts
from headway.inspect.attribution import is_sum
from headway.inspect.parts import eval_mode
from headway.kinds.predictions import (
    BoxesPrediction,
    EntitiesPrediction,
    ExtractPrediction,
    LabelPrediction,
    LabelSetPrediction,
    NumberPrediction,
    PicturePrediction,
    PredictionKind,
    SpanPrediction,
    TextPrediction,
    TranscriptPrediction,
    VectorPrediction,
    WordsPrediction,
)
from headway.tasks.task import Task

TITLE_CHARACTERS = 80
STEPS = 16  # tokens that a decoder generates
# how the input of a model is prepared and its output read, by the kind of prediction
PREPARE: dict[type[PredictionKind], Callable[..., PreparedInput]] = {
    LabelPrediction: prepare_classes,
    LabelSetPrediction: prepare_classes,
    NumberPrediction: prepare_classes,
    ExtractPrediction: prepare_classes,
    EntitiesPrediction: prepare_tags,
    SpanPrediction: prepare_span,
    WordsPrediction: prepare_masks,
    VectorPrediction: prepare_vector,
    TextPrediction: prepare_text,
    PicturePrediction: prepare_flow,
    TranscriptPrediction: prepare_sound,
}
# what makes a whole story by itself
STORIES: dict[type[PredictionKind], Callable[..., story.Story]] = {BoxesPrediction: collect_detection}
# of which another output can be scored
SCORED = (LabelPrediction, LabelSetPrediction, NumberPrediction, TextPrediction)
# outputs that the stream after a layer cannot be read as: not a softmax of one row of logits
NO_LENS = ("vector", "span", "picture", "number", "labels")


def collect(
    bundle: Bundle,
    given: Any,  # a text, or another input of the model's task
    *,
    against: str | None = None,  # an output to score instead: a continuation, a target text, a label
    layers: Sequence[int] | None = None,  # to include with queries, keys and values
    first: int | None = None,  # use only this many tokens of the text
    last: int | None = None,
    steps: int = STEPS,
) -> story.Story:
    task = bundle.find_task()
    kind = type(task.prediction_kind)
    if kind not in PREPARE and kind not in STORIES:
        raise InputError(f"explain does not support task {task.name}")
    if against is not None and not issubclass(kind, SCORED):
        raise InputError(f"against does not apply to task {task.name}")
    value = task.input_kind.parse(given) if isinstance(given, str) else given
    title, shown = _title(task.input_kind.title(value)), shorten(task, value, first=first, last=last)
    with eval_mode(bundle.model):
        if kind in STORIES:
            return STORIES[kind](bundle, task, shown, layers=layers, title=title)
        prepared = PREPARE[kind](bundle, task, shown, against=against)
        if shown is not value and shown != value:
            prepared = replace(prepared, note=[*prepared.note, _shortened(first, last)])
        if not bundle.model.parts:
            return collect_recurrent(bundle, task, prepared, steps=steps, title=title)
        return _transformer(bundle, task, prepared, layers=layers, steps=steps, title=title)


def _transformer(
    bundle: Bundle, task: Task, prepared: PreparedInput, *, layers: Sequence[int] | None, steps: int, title: str
) -> story.Story:
    model = bundle.model
    parts, layers_found = stacks(model), attentions(model)
    widths = {stack.sequence: stack.model.config.stack.block.width for stack in parts}
    kept = select_layers(StorySizes(layers_found, prepared.lengths, widths), layers)
    names = [name for stack in parts for name in tensors.taps(stack, layers_found, kept)]
    with torch.no_grad(), record(model, names) as recorded, record_contexts(model, "*") as contexts:
        output = prepared.read_output(model(**prepared.inputs))
    attention = [
        tensors.attention(each, recorded, contexts, kept) for each in layers_found if each.layer in kept.weights
    ]
    target = importance.target_of(output, first=prepared.answer_from if "target" in prepared.sequences else None)
    whole = bool(parts) and is_sum(parts[-1].part)  # the logit is the sum of what the blocks add to one stream
    own = getattr(task, "labels", None)
    to_text = vocabulary(task.tokenizer) if own is None else labels(own)
    return story.Story(
        title=title,
        model=model_facts(bundle),
        sequences=prepared.sequences,
        task=task.name,
        note=[*prepared.note, *kept.note],
        embedding=[tensors.embedding(stack, recorded, contexts) for stack in parts] if kept.embedding else [],
        attention=attention,
        stream=[part for stack in parts for part in tensors.stream(stack, recorded)],
        output=output,
        lens=None if output.kind in NO_LENS else importance.lens(model, prepared.inputs, to_text),
        heads=None if target is None else importance.heads(model, prepared.inputs, target),
        attribution=None if target is None or not whole else importance.attribution(model, prepared.inputs, target),
        generation=_generation(bundle, task, output, prepared, attention, steps=steps),
    )


def _generation(
    bundle: Bundle,
    task: Task,
    output: story.OutputView,
    prepared: PreparedInput,
    attention: list[story.Attention],
    *,
    steps: int,
) -> story.GenerationView | None:
    if output.kind != "next":
        return None
    if bundle.model.shape == "decoder":
        return continuation(bundle, task, prepared.inputs["inputs"][0].tolist(), steps=steps)
    cross = [each for each in attention if each.kind == "cross"]
    return generation_of(output, cross[-1] if cross else None)


def _shortened(first: int | None, last: int | None) -> str:
    return f"Only the {'first' if first else 'last'} {first or last} tokens of the text were used, as requested."


def _title(text: str) -> str:
    return text if len(text) <= TITLE_CHARACTERS else text[: TITLE_CHARACTERS - 1] + "…"
