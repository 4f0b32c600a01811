"""The Transformer of "Attention Is All You Need" (Vaswani et al. 2017): the `classic` recipe at the
paper's size. The base model by default; the big one is `width=1024, heads=16, inner=4096, dropout=0.3`."""

from __future__ import annotations

from headway.models.config import EncoderDecoderConfig
from headway.models.recipes import Size, encoder_decoder


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
    size = Size(width=width, layers=layers, heads=heads, feedforward=inner, dropout=dropout)
    return encoder_decoder(size, "classic", vocab=vocab, context=None, start_id=start_id)
