"""Spans of words scored against labels that are part of the input (GLiNER, Zaratiana et al. 2024).

An encoder reads the labels, each behind a marker, and the words of a text as one sequence. A word is the vector of its
first token, a label that of its marker. A span is made of its first and its last word, and its logit for a label is
the dot product of both: labels are free text, and the model is not trained for them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.recurrent import Recurrent
from headway.models.config import SpanScorerConfig
from headway.models.encoder import Encoder
from headway.models.outputs import Output
from headway.models.protocol import Model, Part


class SpanScorer(Model):
    def __init__(self, config: SpanScorerConfig):
        super().__init__()
        self.config, width, inner = config, config.width, config.encoder.stack.block.width
        self.encoder = Encoder(config.encoder)
        self.project = Linear(inner, width) if inner != width else None
        self.recurrent = (
            Recurrent("lstm", width, width // 2, layers=config.recurrent_layers, both=True)
            if config.recurrent_layers
            else None
        )
        self.start = Projection(width, width, dropout=config.dropout)
        self.end = Projection(width, width, dropout=config.dropout)
        self.span = Projection(2 * width, width, dropout=config.dropout)
        self.label = Projection(width, width, dropout=config.dropout)

    @property
    def parts(self) -> list[Part]:
        return [Part("encoder", "encoder.", self.encoder)]

    @property
    def max_length(self) -> int | None:
        return self.encoder.max_length

    @property
    def token_table(self) -> Tensor | None:
        return self.encoder.token_table

    def reference_output(self, inputs: Tensor, **more: Any) -> Output:
        """The encoder's hidden states: logits need labels too."""
        return Output(self.encoder.encode(inputs, **more))

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length)
        *,
        word_at: Tensor,  # (batch, word), the first token of each word
        label_at: Tensor,  # (batch, label), the token of each label
        padding_mask: Tensor | None = None,  # (batch, length), nonzero = real
        word_mask: Tensor | None = None,  # (batch, word), nonzero = real; padding is on the right
    ) -> Output:
        """Logits (batch, word, span, label): of the span of 1, 2, … words from each word on; −∞ where it has fewer."""
        hidden = self.encoder.encode(inputs, padding_mask=padding_mask)
        if self.project is not None:
            hidden = self.project(hidden)
        words, labels = rows_at(hidden, word_at), rows_at(hidden, label_at)
        real = torch.ones_like(word_at, dtype=torch.bool) if word_mask is None else word_mask.bool()
        if self.recurrent is not None:
            words, _ = self.recurrent(words, padding_mask=real)
        first = torch.arange(word_at.shape[1], device=inputs.device)[:, None]
        last = first + torch.arange(self.config.longest, device=inputs.device)  # (word, span)
        start, end = self.start(words), self.end(words)[:, last.clamp(max=len(first) - 1)]
        ends = torch.cat([start[:, :, None].expand_as(end), end], dim=-1)  # (batch, word, span, 2 · width)
        spans = self.span(F.relu(ends))
        logits = torch.einsum("bwsd,bld->bwsl", spans, self.label(labels))
        outside = last >= real.sum(1)[:, None, None]  # (batch, word, span)
        return Output(hidden, logits=logits.masked_fill(outside[..., None], -math.inf))


class Projection(nn.Module):
    """Two linear layers, the inner one four times as wide as the output, with a ReLU between them."""

    def __init__(self, inputs: int, width: int, *, dropout: float):
        super().__init__()
        self.up, self.down, self.dropout = Linear(inputs, 4 * width), Linear(4 * width, width), dropout

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.up(x))
        return self.down(drop(x, self.dropout) if self.training and self.dropout else x)


def rows_at(hidden: Tensor, at: Tensor) -> Tensor:
    """(batch, length, width), (batch, n) → (batch, n, width)"""
    return hidden.gather(1, at[..., None].expand(-1, -1, hidden.shape[-1]))
