"""DeBERTa's enhanced mask decoder (He et al. 2021, section 3.2): absolute positions enter just before the masked tokens
are predicted. The last block of the stack runs several times; its queries begin at the hidden states before it plus a
learned vector of their position, its keys and values stay those hidden states."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor, nn

from headway.layers.cache import BlockCache, SharedCache
from headway.layers.embedded import Embedded
from headway.layers.masks import Mask
from headway.models.config import MaskDecoderConfig
from headway.models.stack import Stack


class MaskDecoder(nn.Module):
    def __init__(self, width: int, config: MaskDecoderConfig):
        super().__init__()
        self.positions = config.positions.build(width)
        self.passes = config.passes

    def forward(self, stack: Stack, embedded: Embedded, *, mask: Mask | None) -> Tensor:  # (batch, length, width)
        hidden = stack(embedded, mask=mask, first=len(stack.blocks) - 1)
        last = stack.contexts(
            embedded.positions, dtype=embedded.x.dtype, mask=mask, padding_mask=embedded.padding_mask
        )[-1]
        context, x = replace(last, source=hidden), hidden + self.positions(embedded.positions)
        cache = BlockCache(SharedCache(), None)
        for _ in range(self.passes):
            x = stack.blocks[-1](x, context, cache=cache)
        return stack.finish(x, embedded.padding_mask)
