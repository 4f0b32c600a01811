"""Frozen, nested configs, each of which is all that a shape needs to be built. An exclusive choice is one
typed field. A config is also data: `to_dict` and `validation.from_dict` are inverses, and nothing in it names code."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from headway.layers.block import BlockConfig
from headway.layers.characters import CharacterConfig
from headway.layers.convolution import ConvolutionConfig
from headway.layers.embeddings import EmbeddingConfig, FrontEndConfig, PatchConfig
from headway.layers.feedforward import Activation
from headway.layers.ngrams import NgramConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig
from headway.layers.projected_lstm import ProjectedLSTMConfig
from headway.layers.recurrent import Cell
from headway.layers.relative import RelativeVectorsConfig
from headway.layers.rotary import RotaryConfig
from headway.layers.score_bias import RelativeBiasConfig
from headway.layers.token_convolution import TokenConvolutionConfig
from headway.layers.transformer_xl import DistanceVectorsConfig


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


@dataclass(frozen=True)
class SpanScorerConfig:
    """Scores of spans of words for labels that are part of the input (GLiNER)."""

    encoder: EncoderConfig
    width: int  # of words, spans and labels behind the encoder
    longest: int  # words of a span
    max_words: int  # that an input may have
    recurrent_layers: int = 0  # LSTM layers in both directions over the words
    dropout: float = 0.0
    label_token: str = "<<ENT>>"  # before each label of an input
    separator: str = "<<SEP>>"  # between the labels and the words
    reads_marker: bool = True  # a label's vector is that of the token before it; False: of its first own token
    shape: Literal["span-scorer"] = "span-scorer"

    @property
    def embedding(self) -> FrontEndConfig:
        return self.encoder.embedding

    @property
    def stack(self) -> StackConfig:
        return self.encoder.stack


@dataclass(frozen=True)
class EnsembleConfig:
    """A classifier of texts, and members beside it that read its tokens (models/ensemble.py)."""

    model: EncoderConfig | DecoderConfig | RecurrentEncoderConfig | BiLMConfig
    ngrams: NgramConfig | None = None  # a linear map of token n-grams
    convolution: TokenConvolutionConfig | None = None
    weights: tuple[float, ...] = ()  # of the model and the members, in this order; empty: all 1
    shape: Literal["ensemble"] = "ensemble"

    @property
    def head(self) -> HeadConfig | None:
        return self.model.head

    @property
    def embedding(self) -> Any:
        return self.model.embedding

    @property
    def stack(self) -> Any:
        return self.model.stack  # type: ignore[union-attr]


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
    | SpanScorerConfig
    | EnsembleConfig
)


def layer_count(config: ModelConfig) -> int:
    match config:
        case EnsembleConfig():
            return layer_count(config.model)
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
