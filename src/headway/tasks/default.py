"""The task of a published model, by its shape and head."""

from __future__ import annotations

from collections.abc import Sequence

from headway.checkpoints.sentence import SentenceSettings
from headway.data.target_kinds import Kind
from headway.errors import InputError
from headway.generation.defaults import GenerationDefaults
from headway.models.protocol import Model
from headway.preprocess.id_text import IdTokenizer
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.answer import Answer
from headway.tasks.classify import Classify
from headway.tasks.classify_image import ClassifyImage
from headway.tasks.context_vectors import ContextVectors
from headway.tasks.detect import Detect
from headway.tasks.embed import Embed
from headway.tasks.entities_by_name import EntitiesByName
from headway.tasks.fill import Fill
from headway.tasks.generate import Generate
from headway.tasks.tag import Tag
from headway.tasks.task import Task
from headway.tasks.transcribe import Transcribe
from headway.tasks.translate import Translate

CONTEXT = 1024  # tokens, for models without a limit
MAX_TARGET = 256  # tokens


def default_task(
    model: Model,
    processor: Processor,
    *,
    labels: Sequence[str],
    problem_type: str | None = None,
    generation: GenerationDefaults,
    sentence: SentenceSettings,
) -> Task | None:
    """The task that a published model's shape and head are made for, with the defaults of its files."""
    task = _task(model, processor, labels=labels, problem_type=problem_type, sentence=sentence)
    if isinstance(task, Translate):
        task.generation_defaults = generation.with_greedy()
        task.start_id = task.start_id if generation.start_id is None else generation.start_id
    elif task is not None:
        task.generation_defaults = generation
    return task


def _task(
    model: Model,
    processor: Processor,
    *,
    labels: Sequence[str],
    problem_type: str | None,
    sentence: SentenceSettings,
) -> Task | None:
    if model.head_kind == "detect":
        return _detect(model, processor, labels=labels)
    if model.inputs == "image":
        return _classify_image(model, processor, labels=labels) if model.head_kind == "classify" else None
    if model.shape == "decoder" and model.generates and processor.tokenizer_error is None:
        text = processor.tokenizer or IdTokenizer(model.config.embedding.vocab)
        return Generate(text, context=_limit(model.max_context, text), wrapped=True)
    tokenizer = processor.tokenizer
    if tokenizer is None:
        return None
    if model.inputs == "audio":
        return _transcribe(model, processor) if model.reads_source and model.generates else None
    if model.shape == "encoder-decoder" and model.start_id is not None:
        source, target = _limit(model.max_length, tokenizer), min(_limit(model.max_context, tokenizer) - 1, MAX_TARGET)
        return Translate(tokenizer, start_id=model.start_id, source_limit=source, target_limit=target)
    if model.head_kind == "classify":
        return _classify(model, tokenizer, labels=_named(labels, model), problem_type=problem_type)
    if model.shape == "span-scorer":
        return EntitiesByName.of_model(tokenizer, model)
    if model.shape == "bilm" and not model.gives_logits:
        return ContextVectors(tokenizer)
    if model.shape != "encoder":
        return None
    if model.has_language_head:
        limit = _limit(model.max_length, tokenizer)
        return Fill(tokenizer, limit=limit, next_sentence=model.head_kind == "pooler")
    if model.head_kind == "token" and model.config.head.answer:
        return Answer(tokenizer)
    if model.head_kind == "token" and labels:
        return Tag(tokenizer, labels=list(labels))
    if model.gives_logits:
        return None
    return Embed.from_sentence_settings(tokenizer, sentence, max_length=model.max_length or tokenizer.max_length)


def _limit(own: int | None, tokenizer: Tokenizer) -> int:
    """Tokens that the model reads: its own limit; of a model that has none (relative positions), the tokenizer's."""
    return own or tokenizer.max_length or CONTEXT


def _classify(model: Model, tokenizer: Tokenizer, *, labels: list[str], problem_type: str | None) -> Classify:
    """What the logits mean is decided as in the reference library's pipeline: one label alone has a sigmoid."""
    kind: Kind = "labels"
    if problem_type == "regression":
        kind = "regression"
    elif problem_type == "multi_label_classification" or len(labels) == 1:
        kind = "multilabel"
    task = Classify(tokenizer, labels=labels, limit=_limit(model.max_length, tokenizer), pair=None, kind=kind)
    task.use_model(model)
    return task


def _named(labels: Sequence[str], model: Model) -> list[str]:
    return list(labels) or [f"LABEL_{index}" for index in range(model.head_config.labels)]


def _transcribe(model: Model, processor: Processor) -> Transcribe:
    assert processor.tokenizer is not None and model.start_id is not None
    audio = processor.require_audio("transcribe")
    return Transcribe(
        processor.tokenizer,
        limit=float(audio.chunk_length),
        start_id=model.start_id,
        target_limit=(model.max_context or CONTEXT) // 2,
        loaded_processor=audio,
    )


def _classify_image(model: Model, processor: Processor, *, labels: Sequence[str]) -> ClassifyImage:
    patches = model.config.embedding
    sides = {"image": patches.image[0], "patch": patches.patch[0], "channels": patches.channels}
    image = processor.require_image("classify-image")
    if image.output_size != patches.image:
        found = "any size" if image.output_size is None else "{} × {}".format(*image.output_size)
        expected = "{} × {}".format(*patches.image)
        raise InputError(f"the model's preprocessor makes pictures of {found}, but the model reads {expected} pixels")
    return ClassifyImage(tokenizer=None, labels=_named(labels, model), loaded_processor=image, **sides)  # type: ignore[arg-type]


def _detect(model: Model, processor: Processor, *, labels: Sequence[str]) -> Detect:
    decoder = getattr(model.config, "decoder", None)  # of a model without one, the last tokens are the queries
    queries = model.head_config.tokens if decoder is None else decoder.queries
    options = {"labels": _named(labels, model), "queries": queries, "denoising": 0}
    return Detect(tokenizer=None, loaded_processor=processor.require_image("detect"), **options)  # type: ignore[arg-type]
