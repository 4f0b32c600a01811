"""The task of a published model, by its shape and head."""

from __future__ import annotations

from collections.abc import Sequence

from headway.checkpoints.sentence import SentenceSettings
from headway.errors import InputError
from headway.generation.defaults import GenerationDefaults
from headway.models.protocol import Model
from headway.preprocess.id_text import IdTokenizer
from headway.preprocess.processor import Processor
from headway.tasks.answer import Answer
from headway.tasks.classify import Classify
from headway.tasks.classify_image import ClassifyImage
from headway.tasks.embed import Embed
from headway.tasks.fill import Fill
from headway.tasks.generate import Generate
from headway.tasks.tag import Tag
from headway.tasks.task import Task
from headway.tasks.translate import Translate

CONTEXT = 1024  # tokens, for models without a limit
MAX_TARGET = 256  # tokens


def default_task(
    model: Model,
    processor: Processor,
    *,
    labels: Sequence[str],
    generation: GenerationDefaults,
    sentence: SentenceSettings,
) -> Task | None:
    """The task that a published model's shape and head are made for, with the defaults of its files."""
    task = _task(model, processor, labels=labels, sentence=sentence)
    if isinstance(task, Translate):
        task.generation_defaults = generation.with_greedy()
        task.start_id = task.start_id if generation.start_id is None else generation.start_id
    elif task is not None:
        task.generation_defaults = generation
    return task


def _task(model: Model, processor: Processor, *, labels: Sequence[str], sentence: SentenceSettings) -> Task | None:
    if model.inputs == "image":
        return _classify_image(model, processor, labels=labels) if model.head_kind == "classify" else None
    if model.shape == "decoder" and model.generates and processor.tokenizer_error is None:
        text = processor.tokenizer or IdTokenizer(model.config.embedding.vocab)
        return Generate(text, context=model.max_context or CONTEXT, wrapped=True)
    tokenizer = processor.tokenizer
    if tokenizer is None:
        return None
    if model.shape == "encoder-decoder" and model.start_id is not None:
        limit = (model.max_context or CONTEXT) - 1
        target = min(limit, MAX_TARGET)
        return Translate(tokenizer, start_id=model.start_id, source_limit=limit, target_limit=target)
    if model.head_kind == "classify" and labels:
        return Classify(tokenizer, labels=list(labels))
    if model.shape != "encoder":
        return None
    if model.has_language_head:
        return Fill(tokenizer, next_sentence=model.head_kind == "pooler")
    if model.head_kind == "token" and model.config.head.answer:
        return Answer(tokenizer)
    if model.head_kind == "token" and labels:
        return Tag(tokenizer, labels=list(labels))
    if model.gives_logits:
        return None
    return Embed.from_sentence_settings(tokenizer, sentence, max_length=model.max_length)


def _classify_image(model: Model, processor: Processor, *, labels: Sequence[str]) -> ClassifyImage:
    patches = model.config.embedding
    names = list(labels) or [f"LABEL_{index}" for index in range(model.config.head.labels)]
    sides = {"image": patches.image[0], "patch": patches.patch[0], "channels": patches.channels}
    image = processor.require_image("classify-image")
    if image.output_size != patches.image:
        found = "any size" if image.output_size is None else "{} × {}".format(*image.output_size)
        expected = "{} × {}".format(*patches.image)
        raise InputError(f"the model's preprocessor makes pictures of {found}, but the model reads {expected} pixels")
    return ClassifyImage(tokenizer=None, labels=names, loaded_processor=image, **sides)  # type: ignore[arg-type]
