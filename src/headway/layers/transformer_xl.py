"""Relative positions of Transformer-XL (Dai et al. 2019) and XLNet (Yang et al. 2019): fixed sinusoidal vectors of the
distance, and a score bias that each layer makes of them.

scale · (q · k + u · k + (q + v) · R(r) + (q + s) · e): r is the vector of the distance from the key to the query, R
projects it as a key, u, v and s are learned for each head, and e is one of two learned vectors, for a key of the same
segment and for one of another. `q · k` is attention's own; this bias is the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.positions import Positions, sinusoids
from headway.layers.relative import Relative, relative_scores

if TYPE_CHECKING:
    from headway.layers.attention import Attention
    from headway.layers.context import Context


@dataclass(frozen=True)
class DistanceVectorsConfig:
    """A sinusoidal vector for each distance; distances from `clamp` on share one."""

    clamp: int | None = None
    kind: Literal["distance"] = "distance"

    def problem(self) -> str | None:
        return None

    def build(self, width: int) -> DistanceVectors:
        return DistanceVectors(width, self)


class DistanceVectors(nn.Module):
    def __init__(self, width: int, config: DistanceVectorsConfig):
        super().__init__()
        self.width, self.clamp = width, config.clamp

    def forward(self, positions: Positions) -> Relative:
        device, queries, keys = positions.ids.device, positions.queries, positions.keys
        if positions.columns is None:  # query − key falls from keys − 1 to 1 − queries
            return Relative(self.vectors(torch.arange(keys - 1, -queries, -1, device=device)), None)
        rows = (keys - positions.distances()).clamp(0, 2 * keys)  # of the distances keys … −keys
        vectors = self.vectors(torch.arange(keys, -keys - 1, -1, device=device))
        return Relative(vectors, rows.squeeze(1))

    def vectors(self, distances: Tensor) -> Tensor:  # (row) → (row, width)
        if self.clamp is not None:
            distances = distances.clamp(-self.clamp, self.clamp)
        return sinusoids(distances, self.width, layout="halves")


@dataclass(frozen=True)
class TransformerXLConfig:
    dropout: float = 0.0  # on the vectors
    kind: Literal["transformer-xl"] = "transformer-xl"

    compares_segments: ClassVar[bool] = True

    def build(self, heads: int, head_size: int, *, width: int) -> TransformerXLBias:
        return TransformerXLBias(heads, head_size, self, width=width)


class TransformerXLBias(nn.Module):
    def __init__(self, heads: int, head_size: int, config: TransformerXLConfig, *, width: int):
        super().__init__()
        self.dropout = config.dropout
        self.key = Linear(width, heads * head_size, bias=False)
        self.content, self.position, self.segment = (nn.Parameter(torch.zeros(heads, head_size)) for _ in range(3))
        self.segments = nn.Parameter(torch.zeros(2, heads, head_size))  # of the same segment, of another

    def forward(self, q: Tensor, k: Tensor, context: Context, attention: Attention) -> Tensor:
        """→ (batch, head, query, key)"""
        relative, scale = context.relative, attention.score_scale
        assert relative is not None
        vectors = relative.vectors.to(q.dtype)
        if self.training and self.dropout:
            vectors = drop(vectors, self.dropout)
        keys = self.project(self.key, vectors)  # (head, row, head_size)
        by_position = relative_scores(q + self.position[:, None], keys * scale, relative.rows)
        bias = by_position + (self.content[:, None] * scale) @ k.transpose(-2, -1)
        if context.other_segment is None:
            return bias
        both = (q + self.segment[:, None]) @ (self.segments * scale).permute(1, 2, 0)  # (batch, head, query, 2)
        return bias + torch.where(context.other_segment[:, None], both[..., 1:], both[..., :1])

    def project(self, layer: nn.Module, vectors: Tensor) -> Tensor:  # (row, width) → (head, row, head_size)
        return layer(vectors).unflatten(-1, self.content.shape).transpose(0, 1)
