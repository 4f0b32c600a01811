"""Position at the scores: what is added to QKᵀ/√d_k before the softmax.

A bias by position alone is computed once per pass and shared by all layers of a stack (StackConfig.score_bias). A bias
that also depends on the queries and keys belongs to a layer's attention (AttentionConfig.score_bias); to add one, write
its config with `build(heads, head_size, width=…)`, its module with `forward(q, k, context, attention)`, where `context`
is what the layers share in a pass and `attention` the layer, and a name in `ScoreBiasConfig`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor, nn

from headway.layers.linear import TokenTable
from headway.layers.positions import Positions
from headway.layers.relative import DisentangledConfig
from headway.layers.transformer_xl import TransformerXLConfig

if TYPE_CHECKING:
    from headway.layers.attention import Attention
    from headway.layers.context import Context

# ---------------------------------------------------------------------------------------- by position alone


@dataclass(frozen=True)
class RelativeBiasConfig:
    buckets: int = 32
    max_distance: int = 128

    def problem(self, *, causal: bool) -> str | None:
        """Why distances have no buckets, or None."""
        least = 2 if causal else 4
        return None if self.buckets >= least else f"buckets is {self.buckets}: it must be at least {least}"

    def build(self, heads: int, *, causal: bool) -> RelativeBias:
        return RelativeBias(heads, self, causal=causal)


class RelativeBias(nn.Module):
    """T5's learned bias per head and distance bucket (Raffel et al. 2020): half the buckets are exact distances, the
    other half widen logarithmically up to `max_distance`; shared by all layers of a stack."""

    def __init__(self, heads: int, config: RelativeBiasConfig, *, causal: bool):
        super().__init__()
        self.table = TokenTable(config.buckets, heads)
        self.config, self.causal = config, causal

    def forward(self, positions: Positions) -> Tensor:  # → (batch or 1, head, query, key)
        bias = self.table(self.bucket(-positions.distances()))  # (…, query, key, head)
        return bias.permute(2, 0, 1)[None] if bias.ndim == 3 else bias[:, 0].permute(0, 3, 1, 2)

    def bucket(self, distance: Tensor) -> Tensor:
        """`distance` is key position - query position."""
        if self.causal:
            buckets, side, distance = self.config.buckets, torch.zeros_like(distance), (-distance).clamp(min=0)
        else:
            buckets = self.config.buckets // 2
            side, distance = (distance > 0).long() * buckets, distance.abs()
        exact = buckets // 2
        ratio = torch.log(distance.float().clamp(min=1) / exact) / math.log(self.config.max_distance / exact)
        share = ratio.nan_to_num(1.0).clamp(0, 1)  # not finite where max_distance is within the exact buckets
        wide = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return side + torch.where(distance < exact, distance, wide)


class AlibiBias(nn.Module):
    """-slope × distance, without weights (Press et al. 2022)."""

    def __init__(self, heads: int):
        super().__init__()
        self.heads = heads

    def forward(self, positions: Positions) -> Tensor:  # → (batch or 1, head, query, key)
        distances = positions.distances().abs()
        return -alibi_slopes(self.heads).to(distances.device)[None, :, None, None] * distances


def alibi_slopes(heads: int) -> Tensor:
    """Geometric slopes 2^(-8/n)… (Press et al. 2022); for a head count that is no power of two, the next one's
    every other slope fills up."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes)


# ---------------------------------------------------------------------------------------- by q, k and position


@dataclass(frozen=True)
class RelativeKeyConfig:
    """Relative position keys (Shaw et al. 2018): score += q · r(key − query) / √d_k, distances clipped."""

    max_distance: int
    kind: Literal["relative_key"] = "relative_key"

    def build(self, heads: int, head_size: int, *, width: int) -> RelativeKeyBias:
        return RelativeKeyBias(head_size, self)


class RelativeKeyBias(nn.Module):
    def __init__(self, head_size: int, config: RelativeKeyConfig):
        super().__init__()
        self.table = TokenTable(2 * config.max_distance + 1, head_size)
        self.max_distance, self.scale = config.max_distance, 1 / math.sqrt(head_size)

    def forward(self, q: Tensor, k: Tensor, context: Context, attention: Attention) -> Tensor:
        """→ (batch, head, query, key)"""
        by_distance = q @ self.table.weight.T * self.scale  # (batch, head, query, 2 · max_distance + 1)
        assert context.positions is not None
        clipped = (-context.positions.distances()).clamp(-self.max_distance, self.max_distance) + self.max_distance
        return by_distance.gather(-1, clipped.expand(*q.shape[:-1], k.shape[-2]))


ScoreBiasConfig = RelativeKeyConfig | DisentangledConfig | TransformerXLConfig
