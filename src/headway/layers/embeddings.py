"""Things become vectors: tokens with positions and segments, and image patches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear, TokenTable
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig, LearnedPositions, SinusoidalConfig, SinusoidalPositions
from headway.layers.tap import Tap


@dataclass(frozen=True)
class EmbeddingConfig:
    vocab: int
    width: int
    positions: LearnedConfig | SinusoidalConfig | None = None
    segments: int = 0  # BERT's sentence A / sentence B
    scale: float = 1.0  # √width in the 2017 paper
    norm: NormConfig | None = None
    dropout: float = 0.0

    inputs: ClassVar[Literal["text"]] = "text"

    @property
    def max_length(self) -> int | None:
        """Tokens that have a position; None: no limit."""
        return self.positions.count if isinstance(self.positions, LearnedConfig) else None


class Embedding(nn.Module):
    """token · scale + position + segment, then norm and dropout."""

    def __init__(self, config: EmbeddingConfig):
        super().__init__()
        self.tokens = TokenTable(config.vocab, config.width)
        self.positions = position_vectors(config.width, config.positions)
        self.segments = TokenTable(config.segments, config.width) if config.segments else None
        self.norm = config.norm.build(config.width) if config.norm else None
        self.scale, self.dropout = config.scale, config.dropout
        self.token, self.position, self.sum = Tap(), Tap(), Tap()

    @property
    def token_table(self) -> Tensor:
        return self.tokens.table

    def forward(self, ids: Tensor, *, positions: Tensor, max_position: int, segments: Tensor | None = None) -> Tensor:
        x = self.token(self.tokens(ids))  # (batch, length, width)
        if self.scale != 1.0:
            x = x * self.scale
        if self.positions is not None:
            x = x + self.position(self.positions(positions, max_position)).to(x.dtype)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        x = self.sum(x)
        return drop(x, self.dropout) if self.training and self.dropout else x


def position_vectors(width: int, config: LearnedConfig | SinusoidalConfig | None) -> nn.Module | None:
    if config is None:
        return None
    return LearnedPositions(width, config) if isinstance(config, LearnedConfig) else SinusoidalPositions(width, config)


@dataclass(frozen=True)
class PatchConfig:
    width: int
    image: tuple[int, int]  # height, width
    patch: tuple[int, int]
    channels: int = 3
    bias: bool = True
    dropout: float = 0.0

    inputs: ClassVar[Literal["image"]] = "image"
    vocab: ClassVar[int] = 0
    max_length: ClassVar[None] = None

    @property
    def count(self) -> int:
        return (self.image[0] // self.patch[0]) * (self.image[1] // self.patch[1])


class PatchEmbedding(nn.Module):
    """An image cut into patches, each a token by one linear map, a class token in front (Dosovitskiy et al. 2021)."""

    def __init__(self, config: PatchConfig):
        super().__init__()
        self.config = config
        self.project = Linear(config.channels * config.patch[0] * config.patch[1], config.width, bias=config.bias)
        self.first = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1, config.count + 1, config.width))
        self.patch, self.sum = Tap(), Tap()

    token_table: ClassVar[None] = None

    def forward(self, images: Tensor) -> Tensor:  # (batch, channel, height, width)
        high, wide = self.config.patch
        cut = images.unfold(2, high, high).unfold(3, wide, wide)  # (batch, channel, row, column, high, wide)
        flat = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)  # (batch, patch, channel·high·wide)
        x = self.patch(self.project(flat))
        x = self.sum(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.positions)
        return drop(x, self.config.dropout) if self.training and self.config.dropout else x
