"""Multi-head attention: projections, positions and cache around `attend`. Self, causal and cross are one
class; fewer key/value heads than query heads make it grouped (Ainslie et al. 2023) or multi-query (Shazeer 2019)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn

from headway.layers.attend import NO_MASK, attend, attention_weights, repeat_groups, softmax
from headway.layers.cache import LayerCache
from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.masks import Mask
from headway.layers.norms import NormConfig
from headway.layers.positions import RotaryConfig, rotate
from headway.layers.tap import Tap


@dataclass(frozen=True)
class AttentionConfig:
    heads: int
    head_size: int
    kv_heads: int | None = None  # None: as many as query heads
    bias: str = "qkvo"  # which of the four projections have a bias
    rotary: RotaryConfig | None = None
    qk_norm: NormConfig | None = None  # on each head's query and key, before rotary
    scale: float | None = None  # None: 1/√head_size
    dropout: float = 0.0  # on the weights


class Attention(nn.Module):
    def __init__(self, width: int, config: AttentionConfig):
        super().__init__()
        self.config = config
        self.heads, self.kv_heads = config.heads, config.kv_heads or config.heads
        inner, kv_inner = self.heads * config.head_size, self.kv_heads * config.head_size
        self.query = Linear(width, inner, bias="q" in config.bias)
        self.key = Linear(width, kv_inner, bias="k" in config.bias)
        self.value = Linear(width, kv_inner, bias="v" in config.bias)
        self.output = Linear(inner, width, bias="o" in config.bias)
        self.query_norm = config.qk_norm.build(config.head_size) if config.qk_norm else None
        self.key_norm = config.qk_norm.build(config.head_size) if config.qk_norm else None
        self.q, self.k, self.v, self.scores, self.weights, self.z = (Tap() for _ in range(6))

    def forward(
        self,
        x: Tensor,  # (batch, query, width)
        *,
        memory: Tensor | None = None,  # (batch, key, width): cross-attention looks here instead of at x
        mask: Mask = NO_MASK,
        bias: Tensor | None = None,
        rotary: tuple[Tensor, Tensor] | None = None,
        cache: LayerCache | None = None,
        last: int = 0,  # only so many of the last tokens ask; all are looked at
    ) -> Tensor:
        asking, angles = (x[:, -last:], _last(rotary, last)) if last else (x, rotary)
        q = self.q(self._turn(self._split(self.query(asking), self.heads), self.query_norm, angles))
        if memory is not None and cache is not None and cache.length:
            k, v = cache.keys, cache.values  # the source's keys and values, computed at the first step
        else:
            source = x if memory is None else memory
            k = self._turn(self._split(self.key(source), self.kv_heads), self.key_norm, rotary)
            v = self._split(self.value(source), self.kv_heads)
            if cache is not None:
                k, v = cache.append(k, v)
        k, v = self.k(k), self.v(v)
        z = self.z(self._attend(q, k, v, mask, bias))  # (batch, head, query, head_size)
        return self.output(z.transpose(1, 2).flatten(2))

    def _split(self, x: Tensor, heads: int) -> Tensor:  # (batch, length, heads·size) → (batch, heads, length, size)
        return x.unflatten(-1, (heads, self.config.head_size)).transpose(1, 2)

    def _turn(self, x: Tensor, norm: nn.Module | None, rotary: tuple[Tensor, Tensor] | None) -> Tensor:
        if norm is not None:
            x = norm(x)
        return x if rotary is None else rotate(x, *rotary)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, bias: Tensor | None) -> Tensor:
        """The fast kernel, always; the scores and weights are worked out beside it only when somebody listens. A
        listener that replaces them, or listens in train mode with dropout, gets the explicit path."""
        dropout = self.config.dropout if self.training else 0.0
        scale = self.config.scale
        if not (self.weights.listening or self.scores.listening):
            return attend(q, k, v, mask=mask, bias=bias, scale=scale, dropout=dropout)
        scores, weights = attention_weights(q, k, mask=mask, bias=bias, scale=scale)
        heard_scores = self.scores(scores)
        heard = self.weights(weights if heard_scores is scores else softmax(heard_scores))
        if heard is weights and not dropout:
            return attend(q, k, v, mask=mask, bias=bias, scale=scale)
        return drop(heard, dropout) @ repeat_groups(v, self.heads)


def _last(rotary: tuple[Tensor, Tensor] | None, count: int) -> tuple[Tensor, Tensor] | None:
    return None if rotary is None else (rotary[0][..., -count:, :], rotary[1][..., -count:, :])
