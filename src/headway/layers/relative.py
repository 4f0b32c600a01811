"""Learned vectors of relative positions, shared by the layers of a stack, and the score bias that DeBERTa makes of them
(disentangled attention, He et al. 2021): score += (q · K(r) + k · Q(r)) · scale, where r is the vector of the distance
from the key to the query, and K and Q project it as a key and as a query."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear, TokenTable
from headway.layers.norms import NormConfig
from headway.layers.positions import Positions
from headway.layers.replaceable import replaceable

if TYPE_CHECKING:
    from headway.layers.attention import Attention
    from headway.layers.context import Context


@dataclass(frozen=True)
class RelativeVectorsConfig:
    """`span` vectors for distances below zero and `span` for the others. With `max_distance`, distances of span/2 and
    more share vectors, in buckets that widen logarithmically up to it; without, they end at the span."""

    span: int
    max_distance: int | None = None
    norm: NormConfig | None = None

    def problem(self) -> str | None:
        """Why distances have no buckets, or None."""
        if self.max_distance is None or (self.span >= 2 and self.max_distance - 1 > self.span // 2):
            return None
        return f"max_distance is {self.max_distance}: it must be above {self.span // 2 + 1}, for a span of 2 or more"

    def build(self, width: int) -> RelativeVectors:
        return RelativeVectors(width, self)


@dataclass(frozen=True)
class Relative:
    """`vectors` is (row, width). `rows` is the row of each pair, (query, key) or (batch, query, key); None: the rows
    are those of all distances, from that of the last query to the first key on."""

    vectors: Tensor
    rows: Tensor | None


class RelativeVectors(nn.Module):
    def __init__(self, width: int, config: RelativeVectorsConfig):
        super().__init__()
        self.config = config
        self.table = TokenTable(2 * config.span, width)
        self.norm = config.norm.build(width) if config.norm else None

    def forward(self, positions: Positions) -> Relative:
        span, length = self.config.span, positions.keys
        exact = span // 2 if self.config.max_distance else span
        table = self.table.weight
        if positions.columns is None and positions.queries == length and length <= exact:
            table = table[span - length + 1 : span + length].flip(0)  # query − key falls from length − 1
            return Relative(self._normalise(table), None)
        reach = min(int(self.bucket(torch.tensor(length - 1))), span - 1)  # the largest bucket that can occur
        rows = self.bucket(positions.distances()).clamp(-reach - 1, reach) + reach + 1
        table = table[span - reach - 1 : span + reach + 1]
        return Relative(self._normalise(table), rows.squeeze(1) if rows.ndim == 4 else rows)

    def _normalise(self, table: Tensor) -> Tensor:
        return table if self.norm is None else self.norm(table)

    def bucket(self, distance: Tensor) -> Tensor:
        """`distance` is query position − key position."""
        if self.config.max_distance is None:
            return distance
        exact = self.config.span // 2
        ratio = math.log((self.config.max_distance - 1) / exact)
        far = distance.abs().clamp(min=exact).float()
        wide = torch.ceil(torch.log(far / exact) / ratio * (exact - 1)).long() + exact
        return torch.where(distance.abs() <= exact, distance, wide * distance.sign())


def relative_scores(x: Tensor, vectors: Tensor, rows: Tensor | None, *, transpose: bool = False) -> Tensor:
    """(batch, head, token, size) and (head, row, size) → (batch, head, query, key): the product of a token with the
    vector of each pair. `rows` is as in `Relative`. `transpose`: the tokens are the keys, and the rows of all distances
    are ordered by query − key."""
    if rows is None:
        out = scores_by_distance(x, vectors)
    else:
        rows = rows[:, None] if rows.ndim == 3 else rows
        out = _scores_by_row(x, vectors, rows.transpose(-2, -1) if transpose else rows)
    return out.transpose(-2, -1) if transpose else out


@replaceable
def scores_by_distance(x: Tensor, vectors: Tensor) -> Tensor:
    """out[i, j] = x[i] · vectors[j − i + tokens − 1]"""
    tokens, keys = x.shape[2], vectors.shape[1] - x.shape[2] + 1
    place = torch.arange(tokens, device=x.device)[:, None]
    return _scores_by_row(x, vectors, torch.arange(keys, device=x.device) - place + tokens - 1)


def _scores_by_row(x: Tensor, vectors: Tensor, rows: Tensor) -> Tensor:
    products = by_head(flat(x) @ vectors.transpose(-2, -1), len(x)).transpose(0, 1)  # (batch, head, token, row)
    return products.gather(-1, rows.expand(*products.shape[:-1], rows.shape[-1]))


def flat(x: Tensor) -> Tensor:  # (batch, head, token, size) → (head, batch · token, size)
    return x.transpose(0, 1).flatten(1, 2)


def by_head(x: Tensor, batch: int) -> Tensor:  # (head, batch · token, n) → (head, batch, token, n)
    return x.unflatten(1, (batch, -1))


@dataclass(frozen=True)
class DisentangledConfig:
    to_position: bool = True  # q · K(r): content to position
    from_position: bool = True  # k · Q(r): position to content
    shared: bool = False  # K and Q are the projections of the layer's own keys and queries
    key_bias: bool = True
    dropout: float = 0.0  # on the vectors
    kind: Literal["disentangled"] = "disentangled"

    def build(self, heads: int, head_size: int, *, width: int) -> DisentangledBias:
        return DisentangledBias(heads, head_size, self, width=width)


class DisentangledBias(nn.Module):
    def __init__(self, heads: int, head_size: int, config: DisentangledConfig, *, width: int):
        super().__init__()
        self.config, self.head_size = config, head_size
        inner, own = heads * head_size, not config.shared
        self.key = Linear(width, inner, bias=config.key_bias) if own and config.to_position else None
        self.query = Linear(width, inner) if own and config.from_position else None

    def forward(self, q: Tensor, k: Tensor, context: Context, attention: Attention) -> Tensor:
        """→ (batch, head, query, key)"""
        relative = context.relative
        assert relative is not None
        vectors = relative.vectors
        if self.training and self.config.dropout:
            vectors = drop(vectors, self.config.dropout)
        scale, parts = attention.score_scale, []
        if self.config.to_position:
            keys = self.project(self.key or attention.key, vectors)  # (head, row, head_size)
            parts.append(relative_scores(q, keys * scale, relative.rows))
        if self.config.from_position:
            queries = self.project(self.query or attention.query, vectors) * scale
            if relative.rows is None:
                queries = queries.flip(-2)
            parts.append(relative_scores(k, queries, relative.rows, transpose=True))
        return sum(parts[1:], parts[0])

    def project(self, layer: nn.Module, vectors: Tensor) -> Tensor:  # (row, width) → (head, row, head_size)
        return layer(vectors).unflatten(-1, (-1, self.head_size)).transpose(0, 1)
