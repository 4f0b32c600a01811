"""Frozen, nested configs, each of which is all that a shape needs to be built. An exclusive choice is one
typed field. A config is also data: `to_dict` and `from_dict` are exact inverses, and nothing in it names code."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from dataclasses import dataclass
from typing import Any, Literal

from headway.errors import ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig, PatchConfig
from headway.layers.feedforward import Activation
from headway.layers.norms import NormConfig
from headway.layers.positions import RelativeBiasConfig

LIMITS = {"layers": 10_000, "vocab": 100_000_000, "width": 10_000_000, "heads": 100_000, "labels": 10_000_000}


@dataclass(frozen=True)
class StackConfig:
    """Blocks one after the other."""

    block: BlockConfig
    layers: int
    causal: bool = False
    final_norm: bool = False
    final_dropout: float = 0.0  # after the final norm
    score_bias: RelativeBiasConfig | Literal["alibi"] | None = None
    windows: tuple[int | None, ...] = ()  # sliding window of each layer; empty: none has one


# ---------------------------------------------------------------------------------------- heads


@dataclass(frozen=True)
class TransformConfig:
    """dense → activation → norm, before a masked language model's vocabulary."""

    activation: Activation
    norm: NormConfig


@dataclass(frozen=True)
class LanguageHeadConfig:
    tied: bool = True  # to the token embedding
    bias: bool = False
    scale: float = 1.0  # on the hidden state (T5: 1/√width when tied)
    transform: TransformConfig | None = None
    kind: Literal["language"] = "language"


@dataclass(frozen=True)
class ClassifyHeadConfig:
    """pool one vector → dense and activation, if any → labels."""

    labels: int
    pool: Literal["first", "last", "mean"] = "first"
    dense: Activation | None = None
    bias: bool = True
    dropout: float = 0.0
    dense_dropout: bool = True  # dropout before dense as well as after it (RoBERTa, BART); BERT has it only after
    kind: Literal["classify"] = "classify"


@dataclass(frozen=True)
class TokenHeadConfig:
    """labels for every token."""

    labels: int
    dropout: float = 0.0
    bias: bool = True
    answer: bool = False  # the two labels are the start and the end of an answer
    kind: Literal["token"] = "token"


@dataclass(frozen=True)
class PoolerConfig:
    """BERT's pooler: the first token through dense and tanh. `next_sentence` adds IsNext/NotNext on top, `language`
    the masked language model beside it: BERT's pre-training."""

    activation: Activation = "tanh"
    next_sentence: bool = False
    language: LanguageHeadConfig | None = None
    kind: Literal["pooler"] = "pooler"


HeadConfig = LanguageHeadConfig | ClassifyHeadConfig | TokenHeadConfig | PoolerConfig


# ---------------------------------------------------------------------------------------- shapes


@dataclass(frozen=True)
class EncoderConfig:
    embedding: EmbeddingConfig | PatchConfig
    stack: StackConfig
    head: HeadConfig | None = None
    shape: Literal["encoder"] = "encoder"


@dataclass(frozen=True)
class DecoderConfig:
    embedding: EmbeddingConfig
    stack: StackConfig
    head: HeadConfig | None = LanguageHeadConfig()
    context: int | None = None  # tokens it was made for; None: no limit of its own
    shape: Literal["decoder"] = "decoder"


@dataclass(frozen=True)
class EncoderDecoderConfig:
    encoder: EncoderConfig
    decoder: DecoderConfig
    start_id: int  # what the decoder begins with
    shared_embedding: bool = True
    shape: Literal["encoder-decoder"] = "encoder-decoder"


@dataclass(frozen=True)
class RecurrentConfig:
    """A GRU encoder-decoder with additive attention."""

    embedding: EmbeddingConfig
    hidden: int
    start_id: int
    dropout: float = 0.0
    shape: Literal["recurrent"] = "recurrent"


ModelConfig = EncoderConfig | DecoderConfig | EncoderDecoderConfig | RecurrentConfig


def layer_count(config: ModelConfig) -> int:
    match config:
        case EncoderDecoderConfig():
            return config.encoder.stack.layers + config.decoder.stack.layers
        case RecurrentConfig():
            return 0
        case _:
            return config.stack.layers


def to_dict(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(kind: Any, data: Any, *, path: str = "config") -> Any:
    """The inverse of `to_dict`, strict: unknown keys, missing keys and wrong types are refused by name."""
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _one_of(typing.get_args(kind), data, path)
    if origin is Literal:
        if data not in typing.get_args(kind):
            raise ConfigError(f"{path}: {data!r} is not one of {', '.join(map(repr, typing.get_args(kind)))}")
        return data
    if origin is tuple:
        if not isinstance(data, list | tuple):
            raise ConfigError(f"{path}: expected a list, got {data!r}")
        args = typing.get_args(kind)
        inner = args[0] if len(args) == 2 and args[1] is Ellipsis else None
        if inner is None and len(args) != len(data):
            raise ConfigError(f"{path}: expected {len(args)} values, got {len(data)}")
        return tuple(from_dict(inner or args[i], item, path=f"{path}[{i}]") for i, item in enumerate(data))
    if origin in (list, dict):
        return _collection(origin, typing.get_args(kind), data, path)
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind, data, path)
    return data if kind is Any else _scalar(kind, data, path)


def _collection(origin: Any, args: tuple[Any, ...], data: Any, path: str) -> Any:
    if not isinstance(data, origin):
        raise ConfigError(f"{path}: expected {'a list' if origin is list else 'an object'}, got {data!r:.80}")
    if origin is list:
        return [from_dict(args[0], item, path=f"{path}[{i}]") for i, item in enumerate(data)]
    return {key: from_dict(args[1], value, path=f"{path}.{key}") for key, value in data.items()}


def _one_of(options: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and type(None) in options:
        return None
    errors = []
    for option in options:
        if option is type(None):
            continue
        try:
            return from_dict(option, data, path=path)
        except ConfigError as error:
            errors.append(str(error))
    raise ConfigError(min(errors, key=len) if len(errors) == 1 else f"{path}: fits no known form: " + "; ".join(errors))


def _dataclass(kind: Any, data: Any, path: str) -> Any:
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: expected an object, got {data!r}")
    hints = typing.get_type_hints(kind)
    unknown = [key for key in data if key not in hints]
    if unknown:
        raise ConfigError(f"{path}: unknown key {unknown[0]!r}; known: {', '.join(hints)}")
    values = {key: from_dict(hints[key], value, path=f"{path}.{key}") for key, value in data.items()}
    for field in dataclasses.fields(kind):
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if field.name not in values and required:
            raise ConfigError(f"{path}: missing key {field.name!r}")
    return kind(**values)


def _scalar(kind: Any, data: Any, path: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        data = float(data) if abs(data) < 2**53 else data
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise ConfigError(f"{path}: expected {kind.__name__}, got {data!r}")
    return data


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
        elif isinstance(value, tuple) and any(item is not None and not 0 < item < math.inf for item in value):
            raise ConfigError(f"{name} is {list(value)}: each must be a positive, finite number")
    _agree(config, path)


def _agree(config: Any, path: str) -> None:
    """Sizes that are each possible must also fit together."""
    match config:
        case AttentionConfig(heads=heads, kv_heads=int(few)) if heads % few:
            raise ConfigError(f"{path}.kv_heads is {few}: it does not divide the {heads} heads")
        case StackConfig(windows=windows, layers=layers) if windows and len(windows) != layers:
            raise ConfigError(f"{path}.windows has {len(windows)} values for {layers} layers")
        case EncoderConfig() | DecoderConfig() if config.embedding.width != config.stack.block.width:
            width = config.stack.block.width
            raise ConfigError(f"{path}.embedding.width is {config.embedding.width} but the blocks' is {width}")
        case EncoderDecoderConfig(shared_embedding=True, encoder=encoder, decoder=decoder):
            vocabs = getattr(encoder.embedding, "vocab", None), decoder.embedding.vocab
            if vocabs[0] != vocabs[1]:
                raise ConfigError(f"{path}.shared_embedding needs one vocabulary, not {vocabs[0]} and {vocabs[1]}")


def _positive(path: str, field: dataclasses.Field[Any], value: int) -> None:
    may_be_zero = field.default == 0 or field.name in ("start_id", "layers")
    if value < 0 or (value == 0 and not may_be_zero):
        raise ConfigError(f"{path} is {value}: it must be positive")
    if value > LIMITS.get(field.name, 1_000_000_000):
        raise ConfigError(f"{path} is {value}: larger than any model Headway will allocate for")
