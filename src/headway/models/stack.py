"""Blocks one after the other, with what they share: the mask, the rotary angles, the score bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from headway.layers import masks
from headway.layers.attend import NO_MASK
from headway.layers.block import Block, normalise
from headway.layers.cache import KeyValueCache
from headway.layers.dropout import drop
from headway.layers.masks import CAUSAL, Mask
from headway.layers.positions import RelativeBias, RelativeBiasConfig, Rotary, alibi_bias
from headway.layers.tap import Tap
from headway.models.config import StackConfig

LAST = 16  # tokens that the last block works for when one is wanted: a product with one alone rounds otherwise


class Stack(nn.Module):
    def __init__(self, config: StackConfig):
        super().__init__()
        self.config = config
        block, attention = config.block, config.block.attention
        self.blocks = nn.ModuleList(Block(block) for _ in range(config.layers))
        self.final_norm = block.norm.build(block.width) if config.final_norm else None
        self.rotary = Rotary(attention.head_size, attention.rotary) if attention.rotary else None
        self.relative_bias = (
            RelativeBias(attention.heads, config.score_bias, causal=config.causal)
            if isinstance(config.score_bias, RelativeBiasConfig)
            else None
        )
        self.final = Tap()

    def forward(
        self,
        x: Tensor,  # (batch, length, width)
        *,
        positions: Tensor,  # (batch or 1, length)
        max_position: int,  # no position reaches it
        padding_mask: Tensor | None = None,  # (batch, key), False = padding; with a cache it covers the past too
        sequence_lengths: Tensor | tuple[int, ...] | None = None,  # which tokens see each other: see masks.segments
        cache: KeyValueCache | None = None,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        last: bool = False,  # only the last token is wanted
    ) -> Tensor:
        queries = x.shape[1]
        keys = queries + (cache.length if cache is not None else 0)
        mask = CAUSAL if self.config.causal else NO_MASK
        if padding_mask is not None:
            mask = mask & masks.padding(padding_mask)
        if sequence_lengths is not None:
            mask = mask & masks.segments(sequence_lengths)
        memory_mask = NO_MASK if memory_padding_mask is None else masks.padding(memory_padding_mask)
        rotary = None if self.rotary is None else self.rotary(positions, max_position, dtype=x.dtype)
        bias = self._score_bias(queries, keys, x.device)
        new_padding_mask = padding_mask[:, -queries:] if padding_mask is not None else None
        alone = last and queries > LAST and sequence_lengths is None and not self._heard()
        for layer, block in enumerate(self.blocks):
            ends = alone and layer == len(self.blocks) - 1
            if ends:
                queries, bias = LAST, self._score_bias(LAST, keys, x.device)
            x = block(
                x,
                mask=self._windowed(mask, layer, queries=queries, keys=keys, device=x.device),
                bias=bias,
                rotary=rotary,
                cache=cache.layers[layer] if cache is not None else None,
                memory=memory,
                memory_mask=memory_mask,
                cross_cache=cache.cross[layer] if cache is not None else None,
                padding_mask=new_padding_mask,
                last=LAST if ends else 0,
            )
        if alone and new_padding_mask is not None:
            new_padding_mask = new_padding_mask[:, -LAST:]
        x = self.final(x if self.final_norm is None else normalise(self.final_norm, x, new_padding_mask))
        x = x[:, -1:] if last else x
        dropout = self.config.final_dropout if self.training else 0.0
        return drop(x, dropout) if dropout else x

    def _heard(self) -> bool:
        """Whether somebody listens at the end, or learns: then nothing is left out."""
        end = (self.blocks[-1], self.final, self.final_norm)
        parts = [part for module in end if module is not None for part in module.modules()]
        heard = any(part._forward_hooks or part._forward_pre_hooks for part in parts)
        return heard or self.training or torch.is_grad_enabled()

    def _windowed(self, mask: Mask, layer: int, *, queries: int, keys: int, device: torch.device) -> Mask:
        size = self.config.windows[layer] if self.config.windows else None
        return mask if size is None else mask & masks.window(size, queries=queries, keys=keys, device=device)

    def _score_bias(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        if self.relative_bias is not None:
            return self.relative_bias(queries, keys)
        if self.config.score_bias == "alibi":
            return alibi_bias(self.config.block.attention.heads, queries=queries, keys=keys, device=device)
        return None


def positions_of(
    length: int, *, past: int, keep: Tensor | None, given: Tensor | None, device: torch.device
) -> tuple[Tensor, int]:
    """(positions, their bound) of the last `length` tokens, counted over real tokens: padding shifts nothing."""
    if given is not None:
        return given, int(given.max()) + 1
    if keep is None:
        return torch.arange(past, past + length, device=device)[None], past + length
    return (keep.long().cumsum(1) - 1).clamp(min=0)[:, -length:], past + length
