"""Position enters at one of four places, each chosen by config:

at the input        sinusoidal or learned vectors, added to the embeddings (EmbeddingConfig.positions)
at q and k's inputs the same vectors, added to the inputs of the query and key projections only, as in DETR
                    (EmbeddingConfig.positions_at = "query_key")
at q and k          rotary angles (AttentionConfig.rotary, StackConfig.per_layer; rotary.py)
at the scores       a bias by position alone, shared by all layers (StackConfig.score_bias: T5, ALiBi), or one that also
                    depends on the layer's q and k (AttentionConfig.score_bias; score_bias.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.linear import TokenTable


@dataclass(frozen=True)
class Positions:
    """Where the tokens of one pass are.

    `ids` are their positions in the text, counted over real tokens. `columns` is the place of each query among the
    keys, (batch, query); None: the queries are the last of the keys, in all rows alike."""

    ids: Tensor  # (batch or 1, query)
    queries: int
    keys: int
    max_position: int | None = None  # no position reaches it; None: not known on the host
    columns: Tensor | None = None

    def distances(self) -> Tensor:
        """Query column − key column, (query, key), or (batch, 1, query, key) where rows differ."""
        key = torch.arange(self.keys, device=self.ids.device)
        if self.columns is None:
            return torch.arange(self.keys - self.queries, self.keys, device=self.ids.device)[:, None] - key
        return (self.columns[:, :, None] - key)[:, None]


def positions_of(
    queries: int,
    *,
    device: torch.device,
    given: Tensor | None = None,
    padding_mask: Tensor | None = None,
    past: Sequence[int] | None = None,
) -> Positions:
    """Positions of `queries` new tokens in each row: as given, counted over real tokens (so that padding shifts
    nothing), or behind the `past` tokens of each row."""
    if past is not None:
        most, least = max(past), min(past)
        if most == least:
            ids = torch.arange(most, most + queries, device=device)[None]
            return Positions(ids if given is None else given, queries, most + queries, most + queries)
        columns = torch.tensor(past, device=device)[:, None] + torch.arange(queries, device=device)  # (batch, query)
        return Positions(columns if given is None else given, queries, most + queries, most + queries, columns)
    if given is not None:
        return Positions(given, queries, queries)
    if padding_mask is None:
        return Positions(torch.arange(queries, device=device)[None], queries, queries, queries)
    return Positions((padding_mask.long().cumsum(1) - 1).clamp(min=0), queries, queries, queries)


# ---------------------------------------------------------------------------------------- vectors, for the input


@dataclass(frozen=True)
class LearnedConfig:
    count: int
    offset: int = 0  # published models that keep rows free before position 0 (BART 2, RoBERTa pad + 1)

    def build(self, width: int) -> LearnedPositions:
        return LearnedPositions(width, self)


@dataclass(frozen=True)
class SinusoidalConfig:
    count: int = 0  # positions that a published file keeps as a table; the formula itself has no end
    layout: Literal["interleaved", "halves"] = "interleaved"  # 2017: sin, cos, sin, cos…; Marian: all sin, all cos

    def build(self, width: int) -> SinusoidalPositions:
        return SinusoidalPositions(width, self)


class LearnedPositions(nn.Module):
    def __init__(self, width: int, config: LearnedConfig):
        super().__init__()
        self.table = TokenTable(config.count + config.offset, width)
        self.offset = config.offset

    def forward(self, positions: Positions) -> Tensor:  # → (batch or 1, query, width)
        return self.table(positions.ids + self.offset if self.offset else positions.ids)


class SinusoidalPositions(nn.Module):
    """PE(pos, 2i) = sin(pos / 10000^(2i/width)), PE(pos, 2i+1) = cos(…) (Vaswani et al. 2017, section 3.5)."""

    def __init__(self, width: int, config: SinusoidalConfig):
        super().__init__()
        self.width, self.layout = width, config.layout
        self._table: Tensor | None = None

    def forward(self, positions: Positions) -> Tensor:  # → (batch or 1, query, width)
        if positions.max_position is None:
            return sinusoids(positions.ids, self.width, layout=self.layout)
        if (
            self._table is None
            or len(self._table) < positions.max_position
            or self._table.device != positions.ids.device
        ):
            count = torch.arange(max(2 * positions.max_position, 512), device=positions.ids.device)
            self._table = sinusoids(count, self.width, layout=self.layout)
        return self._table[positions.ids]


def sinusoids(
    positions: Tensor | int, width: int, *, layout: Literal["interleaved", "halves"] = "interleaved"
) -> Tensor:
    """(…) → (…, width), for these positions or for the first so many."""
    if isinstance(positions, int):
        positions = torch.arange(positions)
    even = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    angle = positions[..., None].double() / 10000 ** (even / width)  # (…, width/2)
    sin, cos = angle.sin(), angle.cos()[..., : width // 2]
    if layout == "halves":
        return torch.cat([sin, cos], dim=-1).float()
    table = angle.new_empty(*positions.shape, width)
    table[..., 0::2], table[..., 1::2] = sin, cos
    return table.float()


def resized_grid(vectors: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Vectors of a grid of patches, (n, row · column, width), for a grid of another size, by bicubic interpolation."""
    plane = vectors.transpose(1, 2).unflatten(2, grid)  # (n, width, row, column)
    return F.interpolate(plane, size=size, mode="bicubic", align_corners=False).flatten(2).transpose(1, 2)
