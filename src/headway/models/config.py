"""Frozen, nested configs, each of which is all that a shape needs to be built. An exclusive choice is one
typed field. A config is also data: `to_dict` and `validation.from_dict` are inverses, and nothing in it names code."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from headway.errors import ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig, FrontEndConfig
from headway.layers.feedforward import Activation
from headway.layers.norms import NormConfig
from headway.layers.rotary import RotaryConfig
from headway.layers.score_bias import RelativeBiasConfig

LIMITS = {"layers": 10_000, "vocab": 100_000_000, "width": 10_000_000, "heads": 100_000, "labels": 10_000_000}


@dataclass(frozen=True)
class LayerConfig:
    """How one layer differs from the stack's block."""

    window: int | None = None  # sliding-window attention; None: the whole text
    rotary: RotaryConfig | Literal["none"] | None = None  # None: the block's


@dataclass(frozen=True)
class StackConfig:
    """Blocks one after the other."""

    block: BlockConfig
    layers: int
    causal: bool = False
    final_norm: bool = False
    final_dropout: float = 0.0  # after the final norm
    score_bias: RelativeBiasConfig | Literal["alibi"] | None = None  # by position alone, shared by all layers
    per_layer: tuple[LayerConfig, ...] = ()  # one per layer; empty: all layers are alike

    def layer(self, number: int) -> LayerConfig:
        return self.per_layer[number] if self.per_layer else SAME

    def kinds(self) -> tuple[LayerConfig, ...]:
        """The different layer configs, each once."""
        return tuple(dict.fromkeys(self.per_layer or (SAME,)))

    def rotary(self, layer: LayerConfig) -> RotaryConfig | None:
        if layer.rotary == "none":
            return None
        return self.block.attention.rotary if layer.rotary is None else layer.rotary

    @property
    def windowed(self) -> bool:
        return any(layer.window is not None for layer in self.per_layer)


SAME = LayerConfig()


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
    embedding: FrontEndConfig
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
        elif isinstance(value, tuple) and any(item is not None and not 0 < item < math.inf for item in value):
            raise ConfigError(f"{name} is {list(value)}: each must be a positive, finite number")
    _agree(config, path)


def _agree(config: Any, path: str) -> None:
    """Sizes that are each possible must also fit together."""
    match config:
        case AttentionConfig(heads=heads, kv_heads=int(few)) if heads % few:
            raise ConfigError(f"{path}.kv_heads is {few}: it does not divide the {heads} heads")
        case StackConfig(per_layer=given, layers=layers) if given and len(given) != layers:
            raise ConfigError(f"{path}.per_layer has {len(given)} values for {layers} layers")
        case EncoderConfig() | DecoderConfig() if config.embedding.width != config.stack.block.width:
            width = config.stack.block.width
            raise ConfigError(f"{path}.embedding.width is {config.embedding.width} but the blocks' is {width}")
        case EncoderDecoderConfig(shared_embedding=True, encoder=encoder, decoder=decoder):
            vocabs = encoder.embedding.vocab, decoder.embedding.vocab
            if vocabs[0] != vocabs[1]:
                raise ConfigError(f"{path}.shared_embedding needs one vocabulary, not {vocabs[0]} and {vocabs[1]}")


def _positive(path: str, field: dataclasses.Field[Any], value: int) -> None:
    may_be_zero = field.default == 0 or field.name in ("start_id", "layers")
    if value < 0 or (value == 0 and not may_be_zero):
        raise ConfigError(f"{path} is {value}: it must be positive")
    if value > LIMITS.get(field.name, 1_000_000_000):
        raise ConfigError(f"{path} is {value}: larger than any model Headway will allocate for")
