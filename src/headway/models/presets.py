"""Room: models. The Transformer of "Attention Is All You Need" (Vaswani et al. 2017) as a config, every choice with the
section that makes it. The base model by default; the big one is `width=1024, heads=16, inner=4096, dropout=0.3`."""

from __future__ import annotations

import math
from dataclasses import replace

from headway.layers.attention import AttentionConfig
from headway.layers.block import BlockConfig
from headway.layers.embeddings import EmbeddingConfig
from headway.layers.feedforward import FeedForwardConfig
from headway.layers.norms import NormConfig
from headway.layers.positions import SinusoidalConfig
from headway.models.config import (
    DecoderConfig,
    EncoderConfig,
    EncoderDecoderConfig,
    LanguageHeadConfig,
    StackConfig,
)


def transformer_2017(
    vocab: int,
    *,
    start_id: int,
    layers: int = 6,
    width: int = 512,
    heads: int = 8,
    inner: int = 2048,
    dropout: float = 0.1,
) -> EncoderDecoderConfig:
    attention = AttentionConfig(heads, width // heads, bias="")  # 3.2.2: projections are matrices; d_k = d_v = width/h
    block = BlockConfig(
        width=width,
        attention=attention,
        feedforward=FeedForwardConfig(inner, activation="relu"),  # 3.3: max(0, xW₁ + b₁)W₂ + b₂
        norm=NormConfig("layer"),
        norm_place="post",  # 3.1: LayerNorm(x + Sublayer(x))
        dropout=dropout,  # 5.4: on the output of each sub-layer…
    )
    embedding = EmbeddingConfig(
        vocab,
        width,
        positions=SinusoidalConfig(layout="interleaved"),  # 3.5
        scale=math.sqrt(width),  # 3.4
        dropout=dropout,  # 5.4: …and on the sums of embeddings and positions
    )
    stack = StackConfig(block, layers)
    return EncoderDecoderConfig(
        encoder=EncoderConfig(embedding, stack),
        decoder=DecoderConfig(
            embedding,
            replace(stack, block=replace(block, cross=attention), causal=True),  # 3.1: masked; a third sub-layer
            head=LanguageHeadConfig(tied=True),  # 3.4: one matrix for both embeddings and the pre-softmax map
        ),
        start_id=start_id,
        shared_embedding=True,
    )
