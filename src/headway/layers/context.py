"""What the blocks of a stack share in one pass."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from headway.layers.masks import NO_MASK, Mask
from headway.layers.positions import Positions
from headway.layers.relative import Relative


@dataclass(frozen=True)
class Context:
    mask: Mask = NO_MASK
    positions: Positions | None = None
    rotary: tuple[Tensor, Tensor] | None = None  # cos and sin, (batch or 1, 1, query, size/2)
    bias: Tensor | None = None  # added to the scores, by position alone
    relative: Relative | None = None  # vectors of relative positions, for biases that depend on q and k
    other_segment: Tensor | None = None  # (batch, query, key), True: the key belongs to another segment (XLNet)
    query_key_positions: Tensor | None = None  # added to the inputs of q and k
    source: Tensor | None = None  # (batch, key, width): keys and values are of it, normed as x is, and not of x
    memory: Tensor | None = None  # (batch, source, width), for cross-attention
    memory_mask: Mask = NO_MASK
    memory_positions: Tensor | None = None  # added to the inputs of the cross-attention's keys
    memory_bias: Tensor | None = None  # added to the scores of cross-attention, (batch, head, query, source)
    padding_mask: Tensor | None = None  # (batch, query), True = real, for batch norm
    condition: Tensor | None = None  # (batch, condition), for modulated blocks
