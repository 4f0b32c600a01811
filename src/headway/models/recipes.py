"""Two recipes for a model from scratch, as configs of the one core.

`classic` is the Transformer of 2017 to the letter (Vaswani et al., sections 3.1–3.5 and 5.4: post-norm, sinusoidal
positions, projections without bias, ReLU, embeddings scaled by √width and shared with the output). `modern` is what has
since been found to learn faster: pre-norm, RMS norm, rotary positions, norms on queries and keys, ReLU², no biases.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from headway.errors import ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig, PatchConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import SinusoidalConfig
from headway.layers.rotary import RotaryConfig
from headway.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    RecurrentConfig,
    StackConfig,
)

Recipe = Literal["modern", "classic"]


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


SIZES = {  # for one stack; an encoder-decoder takes half as many layers on each side
    "tiny": Size(width=128, layers=4, heads=4),
    "small": Size(width=256, layers=6, heads=4),
    "base": Size(width=512, layers=12, heads=8),
}


def size_named(name: str, *, stacks: int = 1) -> Size:
    if name not in SIZES:
        raise ConfigError(f"size {name!r} is not one of {', '.join(SIZES)}")
    return replace(SIZES[name], layers=SIZES[name].layers // stacks)


def block(size: Size, recipe: Recipe, *, cross: bool = False, positions: bool = True) -> BlockConfig:
    modern = recipe == "modern"
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
        final_norm=recipe == "modern",
    )


def decoder(size: Size, recipe: Recipe, *, vocab: int, context: int, head: HeadConfig | None = None) -> DecoderConfig:
    return DecoderConfig(
        embedding(size, recipe, vocab=vocab),
        stack(size, recipe, causal=True),
        head=head or LanguageHeadConfig(tied=True),
        context=context,
    )


def encoder(
    size: Size, recipe: Recipe, *, vocab: int, segments: int = 0, head: HeadConfig | None = None
) -> EncoderConfig:
    return EncoderConfig(
        embedding(size, recipe, vocab=vocab, segments=segments), stack(size, recipe, causal=False), head=head
    )


def encoder_decoder(
    size: Size, recipe: Recipe, *, vocab: int, context: int | None, start_id: int
) -> EncoderDecoderConfig:
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


def recurrent(size: Size, *, vocab: int, start_id: int) -> RecurrentConfig:
    """The Transformer's predecessor, of about its size."""
    return RecurrentConfig(
        EmbeddingConfig(vocab, size.width, dropout=size.dropout),
        2 * size.width,
        start_id=start_id,
        dropout=size.dropout,
    )


def vision(
    size: Size, recipe: Recipe, *, image: tuple[int, int], patch: int, channels: int, head: HeadConfig
) -> EncoderConfig:
    """Patches for tokens; their positions are learned, so the blocks need none."""
    return EncoderConfig(
        PatchConfig(size.width, image=image, patch=(patch, patch), channels=channels, dropout=size.dropout),
        stack(size, recipe, causal=False, positions=False),
        head=head,
    )
