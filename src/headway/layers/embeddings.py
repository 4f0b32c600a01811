"""Front ends: what turns inputs into vectors, one protocol for all of them.

A front end is a module whose `forward(inputs, *, padding_mask, positions, segments)` returns `Embedded`: the vectors,
which of them are padding, and where they are. Its config says what it reads (`inputs`), how much (`max_length`,
`vocab`), and builds it. To add one, write the two and name the config in `FrontEndConfig`. The length of its output may
differ from that of its input (patches, strided convolutions): the padding mask it returns is that of the output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear, TokenTable
from headway.layers.norms import NormConfig
from headway.layers.positions import LearnedConfig, Positions, SinusoidalConfig, positions_of
from headway.layers.tap import Tap

PositionsAt = Literal["input", "query_key"]


@dataclass(frozen=True)
class Embedded:
    x: Tensor  # (batch, length, width)
    positions: Positions
    padding_mask: Tensor | None = None  # (batch, length), True = real
    query_key_positions: Tensor | None = None  # (batch or 1, length, width), for the inputs of q and k


# ---------------------------------------------------------------------------------------- tokens


@dataclass(frozen=True)
class EmbeddingConfig:
    vocab: int
    width: int
    positions: LearnedConfig | SinusoidalConfig | None = None
    segments: int = 0  # BERT's sentence A / sentence B
    scale: float = 1.0  # √width in the 2017 paper
    norm: NormConfig | None = None
    dropout: float = 0.0
    positions_at: PositionsAt = "input"  # where position vectors are added: here, or to the inputs of q and k (DETR)

    inputs: ClassVar[Literal["text"]] = "text"

    @property
    def max_length(self) -> int | None:
        """Tokens that have a position; None: no limit."""
        return (self.positions.count or None) if self.positions is not None else None

    def build(self) -> Embedding:
        return Embedding(self)


class Embedding(nn.Module):
    """token · scale + position + segment, then norm and dropout."""

    def __init__(self, config: EmbeddingConfig):
        super().__init__()
        self.tokens = TokenTable(config.vocab, config.width)
        self.positions = config.positions.build(config.width) if config.positions else None
        self.segments = TokenTable(config.segments, config.width) if config.segments else None
        self.norm = config.norm.build(config.width) if config.norm else None
        self.scale, self.dropout, self.positions_at = config.scale, config.dropout, config.positions_at
        self.token, self.position, self.sum = Tap(), Tap(), Tap()

    @property
    def token_table(self) -> Tensor:
        return self.tokens.table

    def forward(
        self,
        ids: Tensor,  # (batch, length)
        *,
        padding_mask: Tensor | None = None,
        positions: Tensor | Positions | None = None,  # None: counted over real tokens
        segments: Tensor | None = None,
    ) -> Embedded:
        if not isinstance(positions, Positions):
            positions = positions_of(ids.shape[1], device=ids.device, given=positions, padding_mask=padding_mask)
        x = self.token(self.tokens(ids))  # (batch, length, width)
        if self.scale != 1.0:
            x = x * self.scale
        vectors = None if self.positions is None else self.position(self.positions(positions)).to(x.dtype)
        if vectors is not None and self.positions_at == "input":
            x = x + vectors
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(ids) if segments is None else segments)
        if self.norm is not None:
            x = self.norm(x)
        x = self.sum(x)
        x = drop(x, self.dropout) if self.training and self.dropout else x
        return Embedded(x, positions, padding_mask, vectors if self.positions_at == "query_key" else None)


# ---------------------------------------------------------------------------------------- image patches


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

    def build(self) -> PatchEmbedding:
        return PatchEmbedding(self)


class PatchEmbedding(nn.Module):
    """An image cut into patches, each a token by one linear map, a class token in front (Dosovitskiy et al. 2021)."""

    token_table: ClassVar[None] = None

    def __init__(self, config: PatchConfig):
        super().__init__()
        self.config = config
        self.project = Linear(config.channels * config.patch[0] * config.patch[1], config.width, bias=config.bias)
        self.first = nn.Parameter(torch.zeros(1, 1, config.width))
        self.positions = nn.Parameter(torch.zeros(1, config.count + 1, config.width))
        self.patch, self.sum = Tap(), Tap()

    def forward(
        self,
        images: Tensor,  # (batch, channel, height, width)
        *,
        padding_mask: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Embedded:
        if positions is not None or segments is not None:
            raise ValueError("image patches have their own positions and no segments")
        high, wide = self.config.patch
        cut = images.unfold(2, high, high).unfold(3, wide, wide)  # (batch, channel, row, column, high, wide)
        flat = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)  # (batch, patch, channel·high·wide)
        x = self.patch(self.project(flat))
        x = self.sum(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1) + self.positions)
        x = drop(x, self.config.dropout) if self.training and self.config.dropout else x
        return Embedded(x, positions_of(x.shape[1], device=x.device), padding_mask)


FrontEndConfig = EmbeddingConfig | PatchConfig
