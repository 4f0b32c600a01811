"""The text models of the recipe `published`, and the decoder of `modern`. Each is a published architecture block for
block, so that a model trained here opens in other libraries: the decoder is Qwen3 (Yang et al. 2025), the encoder
ModernBERT (Warner et al. 2024) without its windows, the encoder-decoder T5 v1.1 (Raffel et al. 2020, Shazeer 2020)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import Activation, FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.rotary import RotaryConfig
from headway.layers.score_bias import RelativeBiasConfig
from headway.models.config import (
    ClassifyHeadConfig,
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    HeadConfig,
    LanguageHeadConfig,
    LayerConfig,
    StackConfig,
    TokenHeadConfig,
    TransformConfig,
)

if TYPE_CHECKING:
    from headway.models.recipes import Size

RMS = NormConfig("rms", eps=1e-6)
LAYER = NormConfig("layer", eps=1e-5, bias=False)


def gated(size: Size, activation: Activation) -> FeedForwardConfig:
    """Three matrices of 8/3 of the width, with the weights of two of four times the width."""
    width = size.feedforward or max(8, round(size.width / 3) * 8)
    return FeedForwardConfig(width, activation=activation, gated=True, bias=False)


def decoder(size: Size, *, vocab: int, context: int, head: HeadConfig | None) -> DecoderConfig:
    """Qwen3: RMS norms, also on queries and keys, rotary positions, SwiGLU, a tied output."""
    attention = AttentionConfig(
        size.heads, size.width // size.heads, kv_heads=size.heads, bias="", rotary=RotaryConfig(), qk_norm=RMS
    )
    block = BlockConfig(size.width, attention, gated(size, "silu"), norm=RMS, dropout=size.dropout)
    return DecoderConfig(
        EmbeddingConfig(vocab, size.width, dropout=size.dropout),
        StackConfig(block, size.layers, causal=True, final_norm=True),
        head=head or LanguageHeadConfig(tied=True),
        context=context,
    )


def encoder(size: Size, *, vocab: int, head: HeadConfig | None) -> EncoderConfig:
    """ModernBERT: layer norms without a shift, rotary positions, GeGLU, and a norm of the embedding in place of that of
    the first attention."""
    attention = AttentionConfig(size.heads, size.width // size.heads, bias="", rotary=RotaryConfig())
    block = BlockConfig(size.width, attention, gated(size, "gelu"), norm=LAYER, dropout=size.dropout)
    layers = tuple(LayerConfig(attention_norm=number > 0) for number in range(size.layers))
    return EncoderConfig(
        EmbeddingConfig(vocab, size.width, norm=LAYER, dropout=size.dropout),
        StackConfig(block, size.layers, final_norm=True, per_layer=layers),
        head=_transformed(head),
    )


def _transformed(head: HeadConfig | None) -> HeadConfig | None:
    """A head of labels with dense layer, activation and norm before it."""
    match head:
        case ClassifyHeadConfig():
            return replace(head, dense="gelu", dense_bias=False, norm=LAYER, dense_dropout=False)
        case TokenHeadConfig():
            return replace(head, transform=TransformConfig("gelu", LAYER, bias=False))
    return head


def encoder_decoder(size: Size, *, vocab: int, start_id: int) -> EncoderDecoderConfig:
    """T5 v1.1: RMS norms, a bias of the scores by relative distance, scores that are not scaled, gated GELU; its output
    is the token embedding, as in the first T5. Any length fits."""
    attention = AttentionConfig(size.heads, size.width // size.heads, bias="", scale=1.0)
    block = BlockConfig(size.width, attention, gated(size, "gelu_tanh"), norm=RMS, dropout=size.dropout)
    embedding = EmbeddingConfig(vocab, size.width, dropout=size.dropout)
    stack = StackConfig(block, size.layers, final_norm=True, score_bias=RelativeBiasConfig(32, 128))
    return EncoderDecoderConfig(
        encoder=EncoderConfig(embedding, stack),
        decoder=DecoderConfig(
            embedding,
            replace(stack, block=replace(block, cross=attention), causal=True),
            head=LanguageHeadConfig(tied=True, scale=size.width**-0.5),
        ),
        start_id=start_id,
    )
