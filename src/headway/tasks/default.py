"""What a model that was not trained here can be asked, told by its shape and head."""

from __future__ import annotations

from collections.abc import Sequence

from headway.checkpoints.sentence import SentenceSettings
from headway.errors import InputError
from headway.generation.defaults import GenerationDefaults
from headway.layers.embeddings import PatchConfig
from headway.models.config import (
    ClassifyHeadConfig,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    LanguageHeadConfig,
    ModelConfig,
    PoolerConfig,
    TokenHeadConfig,
)
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

CONTEXT = 1024  # tokens, for models that set no limit of their own


def default_task(
    config: ModelConfig,
    processor: Processor,
    *,
    labels: Sequence[str],
    generation: GenerationDefaults,
    sentence: SentenceSettings,
) -> Task | None:
    """The task that a published model's shape and head are made for, with the defaults of its files."""
    task = _task(config, processor, labels=labels, sentence=sentence)
    if isinstance(task, Translate):
        task.generation_defaults = generation.with_greedy()
        task.start_id = task.start_id if generation.start_id is None else generation.start_id
    elif task is not None:
        task.generation_defaults = generation
    return task


def _task(
    config: ModelConfig, processor: Processor, *, labels: Sequence[str], sentence: SentenceSettings
) -> Task | None:
    match config:
        case EncoderConfig(embedding=PatchConfig(), head=ClassifyHeadConfig()):
            return _classify_image(config, processor, labels=labels)
        case DecoderConfig(head=LanguageHeadConfig()) if processor.tokenizer_error is None:
            text = processor.tokenizer or IdTokenizer(config.embedding.vocab)
            return Generate(text, context=config.context or CONTEXT, wrapped=True)
    tokenizer = processor.tokenizer
    if tokenizer is None:
        return None
    match config:
        case EncoderDecoderConfig():
            limit = (config.decoder.context or CONTEXT) - 1
            return Translate(tokenizer, start_id=config.start_id, source_limit=limit, target_limit=min(limit, 256))
        case EncoderConfig(head=LanguageHeadConfig()):
            return Fill(tokenizer, next_sentence=False)
        case EncoderConfig(head=PoolerConfig(language=LanguageHeadConfig())):
            return Fill(tokenizer, next_sentence=True)
        case EncoderConfig(head=ClassifyHeadConfig()) | DecoderConfig(head=ClassifyHeadConfig()) if labels:
            return Classify(tokenizer, labels=list(labels))
        case EncoderConfig(head=TokenHeadConfig(answer=True)):
            return Answer(tokenizer)
        case EncoderConfig(head=TokenHeadConfig()) if labels:
            return Tag(tokenizer, labels=list(labels))
        case EncoderConfig(head=None) | EncoderConfig(head=PoolerConfig(language=None, next_sentence=False)):
            return Embed.from_sentence_settings(tokenizer, sentence, max_length=config.embedding.max_length)
    return None


def _classify_image(config: EncoderConfig, processor: Processor, *, labels: Sequence[str]) -> ClassifyImage:
    patches, head = config.embedding, config.head
    assert isinstance(patches, PatchConfig) and isinstance(head, ClassifyHeadConfig)
    names = list(labels) or [f"LABEL_{index}" for index in range(head.labels)]
    sides = {"image": patches.image[0], "patch": patches.patch[0], "channels": patches.channels}
    image = processor.require_image("classify-image")
    if image.output_size != patches.image:
        found = "any size" if image.output_size is None else "{} × {}".format(*image.output_size)
        expected = "{} × {}".format(*patches.image)
        raise InputError(f"the model's preprocessor makes pictures of {found}, but the model reads {expected} pixels")
    return ClassifyImage(tokenizer=None, labels=names, loaded_processor=image, **sides)  # type: ignore[arg-type]
