"""Convolutions over the tokens of a text, each reduced to its largest value, beside a classifier (Kim 2014).

On a few thousand texts they overfit far less than a transformer. The tokens have vectors of their own, which no norm
follows: those of rare tokens stay as small as they begin, and hardly count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear, TokenTable

SPREAD = 0.1  # of the first values of a token's vector


@dataclass(frozen=True)
class TokenConvolutionConfig:
    vocab: int
    width: int = 128  # of a token's vector
    filters: int = 100  # of each size
    sizes: tuple[int, ...] = (1, 2, 3, 4)  # tokens that a filter joins
    dropout: float = 0.5


class TokenConvolution(nn.Module):
    is_head = True  # optimisers treat what lies below as an output layer

    def __init__(self, outputs: int, config: TokenConvolutionConfig):
        super().__init__()
        self.config = config
        self.tokens = TokenTable(config.vocab, config.width)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.width, config.filters, size, padding=size // 2) for size in config.sizes
        )
        self.project = Linear(config.filters * len(config.sizes), outputs)

    def forward(self, ids: Tensor, padding_mask: Tensor | None) -> Tensor:  # (batch, length) → (batch, output)
        real = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask.bool()
        x = (self.tokens(ids) * real[:, :, None]).transpose(1, 2)  # (batch, width, length)
        found = []
        for convolution in self.convolutions:
            values = F.relu(convolution(x))[:, :, : ids.shape[1]]  # (batch, filter, length)
            found.append(values.masked_fill(~real[:, None], 0.0).amax(-1))
        pooled = torch.cat(found, -1)  # (batch, filter of any size)
        dropout = self.config.dropout
        return self.project(drop(pooled, dropout) if self.training and dropout else pooled)

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """First values."""
        self.tokens.weight.normal_(0, SPREAD, generator=generator)
        for layer in (*self.convolutions, self.project):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for tensor in (layer.weight, layer.bias):
                tensor.uniform_(-bound, bound, generator=generator)
