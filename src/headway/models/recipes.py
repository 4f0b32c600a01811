"""The recipes for a model from scratch, as configs of the one core.

`classic` is the Transformer of 2017 to the letter (Vaswani et al., sections 3.1–3.5 and 5.4: post-norm, sinusoidal
positions, projections without bias, ReLU, embeddings scaled by √width and shared with the output). `modern` is what has
since been found to learn faster: pre-norm, RMS norm, rotary positions, norms on queries and keys, ReLU², no biases; its
decoders are those of `published`, whose text models are published architectures (published.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, cast, get_args

from headway.errors import ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.convnet import ConvNetConfig
from headway.layers.embeddings import EmbeddingConfig, FrameConfig, PatchConfig
from headway.layers.feature_map import FeatureMapConfig, Sine2dConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig, SinusoidalConfig
from headway.layers.recurrent import Cell
from headway.layers.rotary import RotaryConfig
from headway.layers.stem import ConvStemConfig
from headway.layers.transformer_xl import DistanceVectorsConfig, TransformerXLConfig
from headway.models import published
from headway.models.config import (
    AnchorConfig,
    ClassifyHeadConfig,
    DecoderConfig,
    DenoiserConfig,
    DetectHeadConfig,
    DetectorConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    FlowConfig,
    HeadConfig,
    LanguageHeadConfig,
    ObjectDecoderConfig,
    RecurrentConfig,
    RecurrentDecoderConfig,
    RecurrentEncoderConfig,
    StackConfig,
    TokenHeadConfig,
    TwoStreamConfig,
)

Recipe = Literal["modern", "published", "classic"]
RECIPES: dict[Recipe, str] = {
    "modern": "the best known blocks",
    "published": "opens in other libraries",
    "classic": "of 2017, to the letter",
}
SizeName = Literal["tiny", "small", "base"]


@dataclass(frozen=True)
class Size:
    """How large a model from scratch is."""

    width: int = 256
    layers: int = 6  # of each stack
    heads: int = 4
    feedforward: int = 0  # 0: four times the width
    dropout: float = 0.1

    def __post_init__(self) -> None:
        if self.heads <= 0 or self.width % self.heads or (self.width // self.heads) % 2:
            raise ConfigError(f"width {self.width} must be a multiple of twice the number of heads ({self.heads})")


SIZES: dict[str, Size] = {  # by SizeName; for one stack: an encoder-decoder takes half as many layers on each side
    "tiny": Size(width=128, layers=4, heads=4),
    "small": Size(width=256, layers=6, heads=4),
    "base": Size(width=512, layers=12, heads=8),
}


def size_named(name: str, *, stacks: int = 1) -> Size:
    if name not in SIZES:
        raise ConfigError(f"size {name!r} is not one of {', '.join(SIZES)}")
    return replace(SIZES[name], layers=SIZES[name].layers // stacks)


def block(size: Size, recipe: Recipe, *, cross: bool = False, positions: bool = True) -> BlockConfig:
    modern = recipe != "classic"
    norm = NormConfig("rms", eps=1e-6) if modern else NormConfig("layer", eps=1e-5)
    attention = AttentionConfig(
        size.heads,
        size.width // size.heads,
        bias="",
        qk_norm=norm if modern else None,
    )
    return BlockConfig(
        width=size.width,
        attention=replace(attention, rotary=RotaryConfig()) if modern and positions else attention,
        cross=attention if cross else None,
        feedforward=FeedForwardConfig(
            size.feedforward or 4 * size.width, activation="relu2" if modern else "relu", bias=not modern
        ),
        norm=norm,
        norm_place="pre" if modern else "post",
        dropout=size.dropout,
    )


def embedding(size: Size, recipe: Recipe, *, vocab: int, segments: int = 0) -> EmbeddingConfig:
    classic = recipe == "classic"
    return EmbeddingConfig(
        vocab,
        size.width,
        positions=SinusoidalConfig() if classic else None,
        segments=segments,
        scale=math.sqrt(size.width) if classic else 1.0,
        norm=None if classic else NormConfig("rms", eps=1e-6),
        dropout=size.dropout,
    )


def stack(size: Size, recipe: Recipe, *, causal: bool, cross: bool = False, positions: bool = True) -> StackConfig:
    return StackConfig(
        block(size, recipe, cross=cross, positions=positions),
        size.layers,
        causal=causal,
        final_norm=recipe != "classic",
    )


def decoder(size: Size, recipe: Recipe, *, vocab: int, context: int, head: HeadConfig | None = None) -> DecoderConfig:
    if recipe != "classic":
        return published.decoder(size, vocab=vocab, context=context, head=head)
    return DecoderConfig(
        embedding(size, recipe, vocab=vocab),
        stack(size, recipe, causal=True),
        head=head or LanguageHeadConfig(tied=True),
        context=context,
    )


def two_stream(size: Size, *, vocab: int, memory: int) -> TwoStreamConfig:
    """XLNet to the letter, in any recipe: post-norm, GELU, relative positions at the scores, no biases in attention."""
    dropout, norm = size.dropout, NormConfig(eps=1e-12)
    attention = AttentionConfig(
        size.heads, size.width // size.heads, bias="", dropout=dropout, score_bias=TransformerXLConfig(dropout)
    )
    feedforward = FeedForwardConfig(size.feedforward or 4 * size.width, activation="gelu", dropout=dropout)
    block = BlockConfig(size.width, attention, feedforward, norm=norm, norm_place="post", dropout=dropout)
    return TwoStreamConfig(
        EmbeddingConfig(vocab, size.width, dropout=dropout, query_vector=True),
        StackConfig(block, size.layers, final_dropout=dropout, relative=DistanceVectorsConfig()),
        LanguageHeadConfig(bias=True),
        memory=memory,
    )


def encoder(
    size: Size, recipe: Recipe, *, vocab: int, segments: int = 0, head: HeadConfig | None = None
) -> EncoderConfig:
    if recipe == "published":  # without segments: the second text of a pair is what follows the separator
        return published.encoder(size, vocab=vocab, head=head)
    return EncoderConfig(
        embedding(size, recipe, vocab=vocab, segments=segments), stack(size, recipe, causal=False), head=head
    )


def encoder_decoder(
    size: Size, recipe: Recipe, *, vocab: int, context: int | None, start_id: int
) -> EncoderDecoderConfig:
    if recipe == "published":
        return published.encoder_decoder(size, vocab=vocab, start_id=start_id)
    return EncoderDecoderConfig(
        encoder=EncoderConfig(embedding(size, recipe, vocab=vocab), stack(size, recipe, causal=False)),
        decoder=DecoderConfig(
            embedding(size, recipe, vocab=vocab),
            stack(size, recipe, causal=True, cross=True),
            head=LanguageHeadConfig(tied=True),
            context=context,
        ),
        start_id=start_id,
        shared_embedding=True,
    )


def speech(
    size: Size, recipe: Recipe, *, bins: int, strides: tuple[int, ...], frames: int, vocab: int, context: int,
    start_id: int, ctc: bool = False,
) -> EncoderDecoderConfig:  # fmt: skip
    """Audio frames for the source. `classic` has a table of positions for `frames`; `modern` reads any length. `ctc`
    gives the encoder a head of its own, for the tokens and a blank."""
    stride = math.prod(strides)
    positions = -(-frames // stride) if recipe == "classic" else 0
    frame = FrameConfig(size.width, bins, strides=strides, positions=positions, dropout=size.dropout)
    blocks: Recipe = "modern" if recipe == "published" else recipe
    text = encoder_decoder(size, blocks, vocab=vocab, context=context, start_id=start_id)
    head = TokenHeadConfig(vocab + 1) if ctc else None
    return replace(text, encoder=replace(text.encoder, embedding=frame, head=head), shared_embedding=False)


TextModel = Literal["transformer", "rnn", "gru", "lstm"]  # that reads or generates a text
TextToText = Literal[
    "transformer", "rnn", "gru", "lstm", "rnn-bahdanau", "gru-bahdanau", "lstm-bahdanau", "rnn-luong", "gru-luong",
    "lstm-luong", "bahdanau-gru",
]  # fmt: skip
CELLS: tuple[Cell, ...] = get_args(Cell)
ATTENTION = {"bahdanau": "additive", "luong": "multiplicative", "": "none"}  # of a recurrent encoder-decoder
RECURRENT = (*CELLS, *(f"{cell}-{name}" for cell in CELLS for name in ATTENTION if name))  # names of architectures


def speech_strides(stride: int) -> tuple[int, ...]:
    """Of the convolutions that make one vector of so many frames: 1, then 2."""
    if stride not in (2, 4, 8):
        raise ConfigError(f"stride {stride} is not one of 2, 4, 8: how many frames of 10 ms become one vector")
    return (1, *[2] * (stride.bit_length() - 1))


def recurrent_embedding(size: Size, *, vocab: int, segments: int = 0) -> EmbeddingConfig:
    """As in `modern`: a norm makes the small first values of the table inputs of variance 1. Without it the gates of a
    cell hardly see which token they read, and hundreds of updates pass before they do (dev/LOG.md)."""
    return embedding(size, "modern", vocab=vocab, segments=segments)


def recurrent(size: Size, *, vocab: int, start_id: int, name: str = "gru-bahdanau") -> RecurrentConfig:
    """A recurrent encoder-decoder of about the size of a Transformer. `name`: one of RECURRENT."""
    cell, _, attention = ("gru-bahdanau" if name == "bahdanau-gru" else name).partition("-")
    return RecurrentConfig(
        recurrent_embedding(size, vocab=vocab),
        2 * size.width,
        start_id=start_id,
        dropout=size.dropout,
        cell=cast(Cell, cell),
        attention=cast(Any, ATTENTION[attention]),
    )


def recurrent_encoder(
    size: Size, *, vocab: int, segments: int = 0, head: HeadConfig | None, cell: str
) -> RecurrentEncoderConfig:
    embedding = recurrent_embedding(size, vocab=vocab, segments=segments)
    return RecurrentEncoderConfig(embedding, size.width, head=head, dropout=size.dropout, cell=cast(Cell, cell))


def recurrent_decoder(size: Size, *, vocab: int, cell: str) -> RecurrentDecoderConfig:
    layers = max(1, size.layers // 2)  # a layer of twice the width has about the weights of two blocks
    embedding = recurrent_embedding(size, vocab=vocab)
    return RecurrentDecoderConfig(embedding, 2 * size.width, dropout=size.dropout, cell=cast(Cell, cell), layers=layers)


def vision(
    size: Size,
    recipe: Recipe,
    *,
    image: tuple[int, int],
    patch: int,
    channels: int,
    head: HeadConfig,
    stem: Sequence[int] = (),
) -> EncoderConfig:
    """Patches for tokens; their positions are learned, so the blocks need none. `stem` has the channels of convolutions
    in place of the linear map of each patch, of which the last have stride 2."""
    pools_patches = isinstance(head, ClassifyHeadConfig) and head.pool == "mean"
    patches = PatchConfig(
        size.width,
        image=image,
        patch=(patch, patch),
        channels=channels,
        dropout=size.dropout,
        class_token=not pools_patches,
        stem=ConvStemConfig(tuple(stem), strides(patch, len(stem))) if stem else None,
    )
    return EncoderConfig(patches, stack(size, recipe, causal=False, positions=False), head=head)


def detector(
    size: Size,
    recipe: Recipe,
    *,
    labels: int,
    queries: int,
    channels: int,
    anchors: AnchorConfig,
    encoder_layers: int = 0,
) -> DetectorConfig:
    """A small residual network in front. `classic`: DETR, as many encoder as decoder layers. `modern`: queries are
    anchors, over a feature map of twice the resolution, whose network takes the place of most encoder layers."""
    classic, step = recipe == "classic", max(8, 3 * size.width // 128 * 8)
    net = ConvNetConfig(step, (2 * step, 4 * step, 8 * step), (1, 2, 2), channels=channels)
    positions = Sine2dConfig() if classic else Sine2dConfig(scale=40 * math.pi)
    front = FeatureMapConfig(size.width, net, positions=positions, top_down=not classic, dropout=size.dropout)
    blocks = stack(size, recipe, causal=False, positions=False)
    return DetectorConfig(
        EncoderConfig(front, blocks if classic else replace(blocks, layers=encoder_layers)),
        ObjectDecoderConfig(
            replace(stack(size, recipe, causal=False, cross=True, positions=False), final_norm=True),
            queries,
            DetectHeadConfig(labels, no_object=classic),
            None if classic else anchors,
        ),
    )


def strides(patch: int, layers: int) -> tuple[int, ...]:
    """Of so many convolutions that make one token of a patch: 1, then 2; what is left over stands in front of the last
    halving, at twice the resolution of the tokens."""
    halvings = patch.bit_length() - 1
    if patch != 1 << halvings or halvings > layers:
        raise ConfigError(
            f"a stem of {layers} convolutions makes patches of 1, 2, 4, … up to {1 << layers} pixels, not {patch}"
        )
    if halvings < 2 or layers == halvings:
        return (1,) * (layers - halvings) + (2,) * halvings
    return (1, *(2,) * (halvings - 1), *(1,) * (layers - halvings - 1), 2)


def captions(size: Size, recipe: Recipe, *, vocab: int) -> EncoderConfig:
    return EncoderConfig(embedding(size, recipe, vocab=vocab), stack(size, recipe, causal=False))


def flow(
    size: Size, recipe: Recipe, *, vocab: int, image: tuple[int, int], patch: int, channels: int, caption_layers: int
) -> FlowConfig:
    """Norms that a condition modulates need no weights of their own."""
    patches = stack(size, recipe, causal=False, cross=True, positions=False)
    norm = replace(patches.block.norm, affine=False, bias=False)
    block = replace(patches.block, norm=norm, norm_place="pre", condition=size.width)
    return FlowConfig(
        captions(replace(size, layers=caption_layers), recipe, vocab=vocab),
        DenoiserConfig(
            PatchConfig(size.width, image, (patch, patch), channels=channels, class_token=False),
            replace(patches, block=block, final_norm=True),
        ),
    )


def captioned_codes(
    size: Size, recipe: Recipe, *, vocab: int, codes: int, count: int, caption_layers: int
) -> EncoderDecoderConfig:
    """A caption, and a sequence of `count` codes of an image; the code after the last is the start token. Positions of
    codes are learned, as each is a place of the image."""
    tokens = replace(embedding(size, recipe, vocab=codes + 1), positions=LearnedConfig(count))
    return EncoderDecoderConfig(
        encoder=captions(replace(size, layers=caption_layers), recipe, vocab=vocab),
        decoder=DecoderConfig(
            tokens, stack(size, recipe, causal=True, cross=True, positions=False), LanguageHeadConfig(), context=count
        ),
        start_id=codes,
        shared_embedding=False,
    )
