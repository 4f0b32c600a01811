"""Multi-head attention: projections, positions and cache around `attend`. Self, causal and cross are one
class; fewer key/value heads than query heads make it grouped (Ainslie et al. 2023) or multi-query (Shazeer 2019).

A block builds its attention from the config. To add another one, write its config with `build(width, cross=…)`, its
module with `forward(x, context, cache=…)`, and its name in `BlockConfig`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from headway.layers.attend import attend, attention_weights, repeat_groups, score_scale, softmax
from headway.layers.cache import LayerCache
from headway.layers.context import Context
from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.masks import Mask
from headway.layers.norms import NormConfig
from headway.layers.rotary import RotaryConfig, rotate
from headway.layers.score_bias import ScoreBiasConfig
from headway.layers.tap import Tap


@dataclass(frozen=True)
class AttentionConfig:
    heads: int
    head_size: int
    kv_heads: int | None = None  # None: as many as query heads
    bias: str = "qkvo"  # which of the four projections have a bias
    rotary: RotaryConfig | None = None
    qk_norm: NormConfig | None = None  # on queries and keys, before rotary
    qk_norm_over: Literal["head", "heads"] = "head"  # the numbers of one head, or of all heads together (OLMo 2)
    scale: float | None = None  # None: 1/√head_size
    dropout: float = 0.0  # on the weights
    score_bias: ScoreBiasConfig | None = None  # depends on q, k and position
    memory_width: int | None = None  # of what cross-attention attends to; None: the block's

    def build(self, width: int, *, cross: bool = False) -> Attention:
        return Attention(width, self, cross=cross)


class Attention(nn.Module):
    def __init__(self, width: int, config: AttentionConfig, *, cross: bool = False):
        super().__init__()
        self.config, self.cross = config, cross
        self.heads, self.kv_heads = config.heads, config.kv_heads or config.heads
        inner, kv_inner = self.heads * config.head_size, self.kv_heads * config.head_size
        self.query = Linear(width, inner, bias="q" in config.bias)
        memory = config.memory_width or width
        self.key = Linear(memory, kv_inner, bias="k" in config.bias)
        self.value = Linear(memory, kv_inner, bias="v" in config.bias)
        self.output = Linear(inner, width, bias="o" in config.bias)
        each_head = config.qk_norm_over == "head"
        self.query_norm = config.qk_norm.build(config.head_size if each_head else inner) if config.qk_norm else None
        self.key_norm = config.qk_norm.build(config.head_size if each_head else kv_inner) if config.qk_norm else None
        self.score_bias: nn.Module | None = None
        if config.score_bias is not None:
            self.score_bias = config.score_bias.build(config.heads, config.head_size, width=width)
        self.q, self.k, self.v, self.scores, self.weights, self.z = (Tap() for _ in range(6))

    def forward(self, x: Tensor, context: Context, *, cache: LayerCache | None = None) -> Tensor:
        """`x` is (batch, query, width). Keys and values are computed from x or, if given, `context.source`; for
        cross-attention from `context.memory`, once per source if there is a cache."""
        q = self.q(self._norm_and_rotate(self.query(add(x, context.query_key_positions)), self.query_norm, context))
        if cache is not None and (cache.fixed or (self.cross and cache.columns)):
            k, v = cache.keys, cache.values
        else:
            k, v = self.keys_and_values(x, context)
            if cache is not None:
                k, v = cache.append(k, v, None if self.cross else context.positions)
        k, v = self.k(k), self.v(v)  # (batch, kv_head, key, head_size)
        mask, bias = self.mask(context), self.bias(q, k, context)
        dropout, scale = self.config.dropout if self.training else 0.0, self.config.scale
        if self.weights.hooked or self.scores.hooked:
            z = self._attend_with_hooks(q, k, v, context, dropout)
        else:
            z = attend(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
        return self.output(self.z(z).transpose(1, 2).flatten(2))  # z is (batch, head, query, head_size)

    def keys_and_values(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Both (batch, kv_head, key, head_size)."""
        source, positions = x if context.source is None else context.source, context.query_key_positions
        if self.cross:
            assert context.memory is not None
            source, positions = context.memory, context.memory_positions
        k = self._norm_and_rotate(self.key(add(source, positions)), self.key_norm, context)
        return k, self._split(self.value(source))

    def mask(self, context: Context) -> Mask:
        return context.memory_mask if self.cross else context.mask

    def bias(self, q: Tensor, k: Tensor, context: Context) -> Tensor | None:
        """What is added to the scores, broadcasting to (batch, head, query, key)."""
        if self.cross:
            return context.memory_bias
        if self.score_bias is None:
            return context.bias
        return add(self.score_bias(q, k, context, self), context.bias)

    @property
    def score_scale(self) -> float:
        """What the products of queries and keys are multiplied by."""
        return score_scale(self.config.head_size, self.config.scale)

    def scores_and_weights(
        self,
        q: Tensor,
        k: Tensor,
        context: Context,
        *,
        heads: Sequence[int] | None = None,
        rows: Sequence[int] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Explicit scores and weights of the values at the taps `q` and `k`, for some heads and queries or for all."""
        mask, bias = self.mask(context), self.bias(q, k, context)
        return attention_weights(q, k, mask=mask, bias=bias, scale=self.config.scale, heads=heads, rows=rows)

    def _attend_with_hooks(self, q: Tensor, k: Tensor, v: Tensor, context: Context, dropout: float) -> Tensor:
        """Scores and weights pass their taps. Unless a hook replaces them or drops some, the values are still those of
        the fused kernel."""
        scores, weights = self.scores_and_weights(q, k, context)
        seen_scores = self.scores(scores)
        seen_weights = self.weights(weights if seen_scores is scores else softmax(seen_scores))
        if seen_weights is weights and not dropout:
            bias, scale = self.bias(q, k, context), self.config.scale
            return attend(q, k, v, mask=self.mask(context), bias=bias, scale=scale)
        return drop(seen_weights, dropout) @ repeat_groups(v, self.heads)

    def _split(self, x: Tensor) -> Tensor:  # (batch, length, heads·size) → (batch, heads, length, size)
        return x.unflatten(-1, (-1, self.config.head_size)).transpose(1, 2)

    def _norm_and_rotate(self, x: Tensor, norm: nn.Module | None, context: Context) -> Tensor:
        if norm is not None and self.config.qk_norm_over == "heads":
            x, norm = norm(x), None
        x = self._split(x)
        if norm is not None:
            x = norm(x)
        return x if context.rotary is None or self.cross else rotate(x, *context.rotary)


def add(x: Tensor, y: Tensor | None) -> Tensor:
    return x if y is None else x + y
