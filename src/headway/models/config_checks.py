"""Which configs can be: sizes that are possible each and together, checked before anything is allocated."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from headway.errors import ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.characters import CharacterConfig
from headway.layers.convnet import ConvNetConfig
from headway.layers.convolution import ConvolutionConfig
from headway.layers.embeddings import EmbeddingConfig, PatchConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.ngrams import NgramConfig
from headway.layers.relative import RelativeVectorsConfig
from headway.layers.rotary import RotaryConfig
from headway.layers.score_bias import RelativeBiasConfig
from headway.layers.stem import ConvStemConfig
from headway.models.config import (
    BiLMConfig,
    DecoderConfig,
    DenoiserConfig,
    DetectorConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    EnsembleConfig,
    LanguageHeadConfig,
    MaskDecoderConfig,
    PoolerConfig,
    RecurrentConfig,
    SpanScorerConfig,
    StackConfig,
    TwoStreamConfig,
)

LARGEST = 1_000_000_000  # number in a config
MOST_UNITS = 1000  # of one stage of a convolutional network
LIMITS = {
    "layers": 10_000,
    "vocab": 100_000_000,
    "width": 10_000_000,
    "heads": 100_000,
    "labels": 10_000_000,
    "queries": 100_000,
    "experts": 10_000,
    "detection_tokens": 100_000,
    "layer_positions": 10_000,
}


def validate(config: Any, *, path: str = "config") -> None:
    """Refuses sizes that cannot be, before anything is allocated: zero or negative, absurdly large, or not finite."""
    for field in dataclasses.fields(config):
        name, value = f"{path}.{field.name}", getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            validate(value, path=name)
        elif isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{name} is {value}: it must be a finite number")
        elif isinstance(value, float) and field.name == "eps" and value < 0:
            raise ConfigError(f"{name} is {value}: it must not be negative")
        elif isinstance(value, float) and field.name.endswith("dropout") and not 0 <= value < 1:
            raise ConfigError(f"{name} is {value}: it must be from 0 to below 1")
        elif isinstance(value, int) and not isinstance(value, bool):
            _positive(name, field, value)
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for number, item in enumerate(value):
                validate(item, path=f"{name}[{number}]")
        elif field.name == "weights" and not all(0 <= item < math.inf for item in value):
            raise ConfigError(f"{name} is {list(value)}: each must be a finite number, not below 0")
        elif field.name == "weights":
            continue
        elif isinstance(value, tuple) and any(item is not None and not 0 < item < math.inf for item in value):
            raise ConfigError(f"{name} is {list(value)}: each must be a positive, finite number")
        elif isinstance(value, tuple) and any(item is not None and item > LARGEST for item in value):
            raise ConfigError(f"{name} has a value larger than any model Headway will allocate for")
    _agree(config, path)


def _agree(config: Any, path: str) -> None:
    """Sizes that are each possible must also fit together."""
    match config:
        case BlockConfig(attention=AttentionConfig(memory_width=int())):
            raise ConfigError(f"{path}.attention.memory_width is for cross-attention: set cross.memory_width")
        case AttentionConfig(heads=heads, kv_heads=int(few)) if heads % few:
            raise ConfigError(f"{path}.kv_heads is {few}: it does not divide the {heads} heads")
        case StackConfig(per_layer=given, layers=layers) if given and len(given) != layers:
            raise ConfigError(f"{path}.per_layer has {len(given)} values for {layers} layers")
        case StackConfig(relative=None, block=BlockConfig(attention=AttentionConfig(score_bias=bias))) if getattr(
            bias, "kind", None
        ) in ("disentangled", "transformer-xl"):
            raise ConfigError(f"{path}.relative is missing: the score bias of the blocks needs vectors of distances")
        case ConvStemConfig(channels=channels, strides=strides) if len(channels) != len(strides) or not channels:
            raise ConfigError(f"{path} has channels for {len(channels)} convolutions and strides for {len(strides)}")
        case PatchConfig(stem=ConvStemConfig(stride=stride), patch=patch) if patch != (stride, stride):
            raise ConfigError(f"{path}.patch is {list(patch)}, but the strides of the stem multiply to {stride}")
        case EncoderConfig() | DecoderConfig() | DenoiserConfig() if config.embedding.width != config.stack.block.width:
            width = config.stack.block.width
            raise ConfigError(f"{path}.embedding.width is {config.embedding.width} but the blocks' is {width}")
        case ConvNetConfig(stages=stages, depths=depths) if len(stages) != len(depths) or max(depths) > MOST_UNITS:
            raise ConfigError(f"{path}.depths is {list(depths)} for the {len(stages)} stages")
        case DetectorConfig(encoder=encoder, decoder=decoder):
            _attends(decoder.stack.block, encoder.stack.block, path)
        case EncoderDecoderConfig(encoder=encoder, decoder=decoder):
            _attends(decoder.stack.block, encoder.stack.block, path)
            vocabs = encoder.embedding.vocab, decoder.embedding.vocab
            if config.shared_embedding and vocabs[0] != vocabs[1]:
                raise ConfigError(f"{path}.shared_embedding needs one vocabulary, not {vocabs[0]} and {vocabs[1]}")
        case EncoderConfig(head=LanguageHeadConfig(mask_decoder=MaskDecoderConfig()), stack=stack):
            if stack.block.norm_place != "post" or not stack.layers:
                raise ConfigError(f"{path}.head.mask_decoder needs a block whose norms follow its branches")
        case BiLMConfig(embedding=embedding, stack=stack) if embedding.width != stack.width:
            raise ConfigError(f"{path}.embedding.width is {embedding.width} but the width of the LSTMs {stack.width}")
        case CharacterConfig(filters=filters, longest=longest) if any(each.characters > longest for each in filters):
            raise ConfigError(f"{path}.filters joins more characters than a word has ({longest})")
        case TwoStreamConfig(embedding=embedding, stack=stack):
            if stack.block.norm_place != "post" or not embedding.query_vector or embedding.width != stack.block.width:
                raise ConfigError(f"{path} needs blocks whose norms follow their branches, and an embedding of their "
                                  "width with a query vector")  # fmt: skip
        case DenoiserConfig(stack=stack) if stack.block.cross is None or stack.block.condition is None:
            raise ConfigError(f"{path}.stack needs cross-attention and a condition")

    problem = _problem(config)
    if problem is not None:
        raise ConfigError(f"{path}.{problem}")


def _attends(decoder: BlockConfig, encoder: BlockConfig, path: str) -> None:
    if decoder.memory_width is None:
        raise ConfigError(f"{path}.decoder.stack.block.cross is missing: the decoder attends to the encoder's output")
    if decoder.memory_width != encoder.width:
        raise ConfigError(
            f"{path}.decoder.stack.block.cross.memory_width is {decoder.memory_width}, but the encoder's width is "
            f"{encoder.width}"
        )


def _problem(config: Any) -> str | None:
    """Values from which nothing can be computed: the field and why; None if there are none."""
    match config:
        case BlockConfig(attention=AttentionConfig(head_size=size, rotary=RotaryConfig() as rotary)):
            return _within("attention.rotary", rotary.problem(size))
        case StackConfig(block=block):
            size = block.attention.head_size
            own = [layer.rotary.problem(size) for layer in config.kinds() if isinstance(layer.rotary, RotaryConfig)]
            bias = config.score_bias
            by_distance = bias.problem(causal=config.causal) if isinstance(bias, RelativeBiasConfig) else None
            return _within("per_layer.rotary", next(filter(None, own), None)) or _within("score_bias", by_distance)
        case RelativeVectorsConfig() | ConvolutionConfig() | FeedForwardConfig() | NgramConfig():
            return config.problem()
        case EncoderConfig(
            head=LanguageHeadConfig() | PoolerConfig(language=LanguageHeadConfig()), embedding=embedding
        ):
            return None if embedding.vocab else "head predicts tokens, but the model reads none"
        case EnsembleConfig(model=model) if getattr(model.head, "kind", None) != "classify":
            return "model has no head that classifies, so it has no members beside it"
        case EnsembleConfig(weights=weights, ngrams=ngrams, convolution=convolution) if weights:
            count = 1 + (ngrams is not None) + (convolution is not None)
            return None if len(weights) == count else f"weights has {len(weights)} values for {count} parts"
        case EncoderDecoderConfig(start_id=start, decoder=DecoderConfig(embedding=EmbeddingConfig(vocab=vocab))):
            return None if start < vocab else f"start_id is {start}: the vocabulary has {vocab} tokens"
        case SpanScorerConfig(width=width, recurrent_layers=layers) if layers and width % 2:
            return f"width is {width}: two directions of an LSTM cannot share it evenly"
        case RecurrentConfig(start_id=start, embedding=EmbeddingConfig(vocab=vocab)):
            return None if start < vocab else f"start_id is {start}: the vocabulary has {vocab} tokens"
    return None


def _within(field: str, problem: str | None) -> str | None:
    return problem and f"{field}.{problem}"


def _positive(path: str, field: dataclasses.Field[Any], value: int) -> None:
    may_be_zero = field.default == 0 or field.name in ("start_id", "layers")
    if value < 0 or (value == 0 and not may_be_zero):
        raise ConfigError(f"{path} is {value}: it must be positive")
    if value > LIMITS.get(field.name, LARGEST):
        raise ConfigError(f"{path} is {value}: larger than any model Headway will allocate for")
