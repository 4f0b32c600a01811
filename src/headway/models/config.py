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
from headway.layers.characters import CharacterConfig
from headway.layers.convnet import ConvNetConfig
from headway.layers.convolution import ConvolutionConfig
from headway.layers.embeddings import EmbeddingConfig, FrontEndConfig, PatchConfig
from headway.layers.feedforward import Activation, FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig
from headway.layers.projected_lstm import ProjectedLSTMConfig
from headway.layers.recurrent import Cell
from headway.layers.relative import RelativeVectorsConfig
from headway.layers.rotary import RotaryConfig
from headway.layers.score_bias import RelativeBiasConfig
from headway.layers.stem import ConvStemConfig
from headway.layers.transformer_xl import DistanceVectorsConfig

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


@dataclass(frozen=True)
class LayerConfig:
    """How one layer differs from the stack's block."""

    window: int | None = None  # sliding-window attention; None: the whole text
    rotary: RotaryConfig | Literal["none"] | None = None  # None: the block's
    attention_norm: bool = True  # False: attention reads the stream as it is (the first layer of ModernBERT)


@dataclass(frozen=True)
class StackConfig:
    """Blocks one after the other."""

    block: BlockConfig
    layers: int
    causal: bool = False
    final_norm: bool = False
    final_dropout: float = 0.0  # after the final norm
    score_bias: RelativeBiasConfig | Literal["alibi"] | None = None  # by position alone, shared by all layers
    # shared by biases of the layers that depend on q and k (DeBERTa, XLNet)
    relative: RelativeVectorsConfig | DistanceVectorsConfig | None = None
    convolution: ConvolutionConfig | None = None  # beside the first block (DeBERTa v2)
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
    def compares_segments(self) -> bool:
        """Whether scores depend on whether query and key belong to the same segment."""
        return getattr(self.block.attention.score_bias, "compares_segments", False)

    @property
    def windowed(self) -> bool:
        return any(layer.window is not None for layer in self.per_layer)


SAME = LayerConfig()


# ---------------------------------------------------------------------------------------- heads


@dataclass(frozen=True)
class TransformConfig:
    """dense → activation → norm, before a masked language model's vocabulary or the labels of a token."""

    activation: Activation
    norm: NormConfig
    bias: bool = True  # of dense


@dataclass(frozen=True)
class MaskDecoderConfig:
    """DeBERTa's enhanced mask decoder: the last block runs `passes` times over queries with absolute positions."""

    positions: LearnedConfig
    passes: int = 2


@dataclass(frozen=True)
class LanguageHeadConfig:
    tied: bool = True  # to the token embedding
    bias: bool = False
    scale: float = 1.0  # on the hidden state (T5: 1/√width when tied)
    transform: TransformConfig | None = None
    mask_decoder: MaskDecoderConfig | None = None  # of an encoder with norms behind its blocks (DeBERTa)
    kind: Literal["language"] = "language"


@dataclass(frozen=True)
class ClassifyHeadConfig:
    """pool one vector → dense, activation and norm, if any → labels. Pooled "late", the logits of all tokens are
    averaged instead."""

    labels: int
    pool: Literal["first", "last", "mean", "late"] = "first"
    dense: Activation | None = None
    dense_bias: bool = True
    norm: NormConfig | None = None  # after dense and activation
    bias: bool = True
    dropout: float = 0.0
    dense_dropout: bool = True  # dropout before dense as well as after it (RoBERTa, BART); BERT has it only after
    distilled: bool = False  # a second projection, of the second token; the logits are the mean of both (DeiT)
    kind: Literal["classify"] = "classify"


@dataclass(frozen=True)
class TokenHeadConfig:
    """labels for every token."""

    labels: int
    dropout: float = 0.0
    bias: bool = True
    answer: bool = False  # the two labels are the start and the end of an answer
    transform: TransformConfig | None = None
    kind: Literal["token"] = "token"


@dataclass(frozen=True)
class PoolerConfig:
    """BERT's pooler: the first token through dense and tanh. `next_sentence` adds IsNext/NotNext on top, `language`
    the masked language model beside it: BERT's pre-training."""

    activation: Activation = "tanh"
    next_sentence: bool = False
    language: LanguageHeadConfig | None = None
    kind: Literal["pooler"] = "pooler"


@dataclass(frozen=True)
class DetectHeadConfig:
    """A class and a box for each query, by small MLPs."""

    labels: int
    no_object: bool = True  # one more class, chosen by softmax (DETR); False: a sigmoid for each class
    class_layers: int = 1
    tokens: int | None = None  # the queries are the last so many tokens (YOLOS); None: all
    kind: Literal["detect"] = "detect"


HeadConfig = LanguageHeadConfig | ClassifyHeadConfig | TokenHeadConfig | PoolerConfig | DetectHeadConfig


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
class TwoStreamConfig:
    """A language model for any order of the tokens (XLNet)."""

    embedding: EmbeddingConfig
    stack: StackConfig
    head: HeadConfig | None = LanguageHeadConfig()
    memory: int = 0  # tokens of earlier segments that attention reaches, without gradients
    shape: Literal["two-stream"] = "two-stream"


@dataclass(frozen=True)
class EncoderDecoderConfig:
    encoder: EncoderConfig
    decoder: DecoderConfig
    start_id: int  # what the decoder begins with
    shared_embedding: bool = True
    shape: Literal["encoder-decoder"] = "encoder-decoder"


@dataclass(frozen=True)
class RecurrentConfig:
    """A recurrent encoder-decoder, with attention to the source or without."""

    embedding: EmbeddingConfig
    hidden: int
    start_id: int
    dropout: float = 0.0
    cell: Cell = "gru"
    attention: Literal["additive", "multiplicative", "none"] = "additive"
    layers: int = 1
    shape: Literal["recurrent"] = "recurrent"


@dataclass(frozen=True)
class RecurrentEncoderConfig:
    """Recurrent layers in both directions."""

    embedding: EmbeddingConfig
    hidden: int  # of each direction
    head: HeadConfig | None = None
    dropout: float = 0.0
    cell: Cell = "lstm"
    layers: int = 1
    shape: Literal["recurrent-encoder"] = "recurrent-encoder"


@dataclass(frozen=True)
class RecurrentDecoderConfig:
    """Recurrent layers from left to right: a language model."""

    embedding: EmbeddingConfig
    hidden: int
    head: LanguageHeadConfig = LanguageHeadConfig()
    dropout: float = 0.0
    cell: Cell = "lstm"
    layers: int = 1
    shape: Literal["recurrent-decoder"] = "recurrent-decoder"


@dataclass(frozen=True)
class BiLMConfig:
    """Language models from left to right and from right to left over the characters of words (ELMo)."""

    embedding: CharacterConfig
    stack: ProjectedLSTMConfig
    head: HeadConfig | None = None
    vocab: int = 0  # words that a language head predicts
    shape: Literal["bilm"] = "bilm"

    @property
    def cell(self) -> Cell:
        return "lstm"

    @property
    def layers(self) -> int:
        return self.stack.layers

    @property
    def hidden(self) -> int:
        return self.stack.hidden


@dataclass(frozen=True)
class DenoiserConfig:
    """A stack over the patches of a noisy image, modulated by a condition and with cross-attention."""

    embedding: PatchConfig
    stack: StackConfig


@dataclass(frozen=True)
class FlowConfig:
    """A caption encoder, and a denoiser that attends to its output."""

    encoder: EncoderConfig
    denoiser: DenoiserConfig
    shape: Literal["flow"] = "flow"


@dataclass(frozen=True)
class AnchorConfig:
    """Queries that are boxes, which every decoder layer corrects (DAB-DETR, Liu et al. 2022)."""

    proposals: bool = True  # they are a picture's best vectors, by a head on the encoder; False: learned
    denoising: bool = True  # in training, targets with noise are queries too (DN-DETR, Li et al. 2022)
    prior: bool = True  # cross-attention prefers what is inside the box (SMCA, Gao et al. 2021)
    refine: bool = True  # a layer corrects the box of the layer before it; False: all correct the first one
    size: float = 0.125  # side of a proposal before anything is learned, as a share of the picture


@dataclass(frozen=True)
class ObjectDecoderConfig:
    stack: StackConfig
    queries: int
    head: DetectHeadConfig
    anchors: AnchorConfig | None = None  # None: queries are learned vectors (DETR)


@dataclass(frozen=True)
class DetectorConfig:
    """An image encoder, and a decoder whose queries each find an object."""

    encoder: EncoderConfig
    decoder: ObjectDecoderConfig
    shape: Literal["detector"] = "detector"


ModelConfig = (
    EncoderConfig
    | DecoderConfig
    | EncoderDecoderConfig
    | RecurrentConfig
    | RecurrentEncoderConfig
    | RecurrentDecoderConfig
    | BiLMConfig
    | FlowConfig
    | DetectorConfig
    | TwoStreamConfig
)


def layer_count(config: ModelConfig) -> int:
    match config:
        case EncoderDecoderConfig() | DetectorConfig():
            return config.encoder.stack.layers + config.decoder.stack.layers
        case FlowConfig():
            return config.encoder.stack.layers + config.denoiser.stack.layers
        case RecurrentConfig() | RecurrentEncoderConfig() | RecurrentDecoderConfig():
            return config.layers
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
        elif isinstance(value, tuple) and any(item is not None and item > LARGEST for item in value):
            raise ConfigError(f"{name} has a value larger than any model Headway will allocate for")
    _agree(config, path)


def _agree(config: Any, path: str) -> None:
    """Sizes that are each possible must also fit together."""
    match config:
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
            if encoder.stack.block.width != decoder.stack.block.width or decoder.stack.block.cross is None:
                raise ConfigError(f"{path}.decoder needs cross-attention and the width of the encoder")
        case EncoderDecoderConfig(shared_embedding=True, encoder=encoder, decoder=decoder):
            vocabs = encoder.embedding.vocab, decoder.embedding.vocab
            if vocabs[0] != vocabs[1]:
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
        case RelativeVectorsConfig() | ConvolutionConfig() | FeedForwardConfig():
            return config.problem()
        case EncoderConfig(
            head=LanguageHeadConfig() | PoolerConfig(language=LanguageHeadConfig()), embedding=embedding
        ):
            return None if embedding.vocab else "head predicts tokens, but the model reads none"
        case EncoderDecoderConfig(start_id=start, decoder=DecoderConfig(embedding=EmbeddingConfig(vocab=vocab))):
            return None if start < vocab else f"start_id is {start}: the vocabulary has {vocab} tokens"
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
