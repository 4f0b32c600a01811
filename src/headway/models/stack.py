"""Blocks one after the other, with what they share: masks, rotary angles, score bias."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from headway.layers import masks
from headway.layers.block import NO_CACHE, Block, normalise
from headway.layers.cache import KeyValueCache
from headway.layers.context import Context
from headway.layers.dropout import drop
from headway.layers.embedded import Embedded
from headway.layers.masks import CAUSAL, NO_MASK, Mask
from headway.layers.positions import Positions
from headway.layers.rotary import Rotary
from headway.layers.score_bias import AlibiBias
from headway.layers.tap import Tap
from headway.models.config import LayerConfig, StackConfig


def packed(mask: Mask | None, sequence_lengths: tuple[int, ...] | None, *, causal: bool) -> Mask | None:
    """The mask of a row of sequences laid end to end; a single one needs none."""
    if sequence_lengths is None or len(sequence_lengths) == 1:
        return mask
    return (mask or Mask(causal=causal)) & Mask(sequence_lengths=sequence_lengths)


def other_segment(segments: Tensor | None, *, memory: int = 0) -> Tensor | None:
    """(batch, query, key), True where the key belongs to another segment; a memory in front of the keys belongs to
    segment 0."""
    if segments is None:
        return None
    keys = torch.nn.functional.pad(segments, (memory, 0))
    return segments[:, :, None] != keys[:, None, :]


class Stack(nn.Module):
    def __init__(self, config: StackConfig):
        super().__init__()
        self.config = config
        block, heads = config.block, config.block.attention.heads
        self.blocks = nn.ModuleList(
            Block(block, attention_norm=config.layer(i).attention_norm) for i in range(config.layers)
        )
        self.final_norm = block.norm.build(block.width) if config.final_norm else None
        self.rotaries = {  # by config: angles have no weights
            rotary: Rotary(block.attention.head_size, rotary)
            for rotary in (config.rotary(layer) for layer in config.kinds())
            if rotary is not None
        }
        self.relative_bias: nn.Module | None = None
        if config.score_bias is not None:
            alibi = config.score_bias == "alibi"
            self.relative_bias = AlibiBias(heads) if alibi else config.score_bias.build(heads, causal=config.causal)  # type: ignore[union-attr]
        self.relative = config.relative.build(block.width) if config.relative else None
        self.convolution = config.convolution.build(block.width) if config.convolution else None
        self.final = Tap()

    def forward(
        self,
        embedded: Embedded,
        *,
        mask: Mask | None = None,  # in place of the causal or full one; padding is added to it
        memory: Tensor | None = None,  # (batch, source, width)
        memory_padding_mask: Tensor | None = None,
        memory_positions: Tensor | None = None,
        cache: KeyValueCache | None = None,
        condition: Tensor | None = None,
        first: int | None = None,  # run so many blocks only, without what follows the last
        columns: Tensor | None = None,  # (batch, n): the last block computes these tokens only; see `computes_columns`
    ) -> Tensor:  # (batch, length or n, width)
        contexts = self.contexts(
            embedded.positions,
            dtype=embedded.x.dtype,
            mask=mask,
            padding_mask=embedded.padding_mask,
            query_key_positions=embedded.query_key_positions,
            other_segment=other_segment(embedded.segments) if self.config.compares_segments else None,
            memory=memory,
            memory_mask=NO_MASK if memory_padding_mask is None else masks.padding(memory_padding_mask),
            memory_positions=memory_positions,
            condition=condition,
        )
        x = embedded.x
        for number, block in enumerate(islice(self.blocks, first)):
            start, context = x, contexts[number]
            if columns is not None and number == len(self.blocks) - 1:
                x, context = self._select(x, context, columns)
            x = block(x, context, cache=NO_CACHE if cache is None else cache.block(number))
            if self.convolution is not None and number == 0:
                x = self.convolution(start, x, context)
            if embedded.layer_positions is not None and number < len(embedded.layer_positions):
                x = x + embedded.layer_positions[number]
        return x if first is not None else self.finish(x, embedded.padding_mask)

    @property
    def computes_columns(self) -> bool:
        """Whether the last block can compute some tokens alone, with keys and values of all: nothing but positions and
        padding may depend on which token is a query."""
        config = self.config
        shared = config.causal or config.windowed or config.compares_segments or config.block.norm.kind == "batch"
        return not (shared or self.rotaries or self.convolution)

    def _select(self, x: Tensor, context: Context, columns: Tensor) -> tuple[Tensor, Context]:
        """The inputs of a block that computes some tokens only."""
        old = context.positions
        assert old is not None
        ids = old.ids.expand(len(x), -1).gather(1, columns)
        positions = replace(old, ids=ids, queries=columns.shape[1], columns=columns)
        context = replace(context, positions=positions, source=x, **self._by_position(positions))
        return x.gather(1, columns[..., None].expand(-1, -1, x.shape[-1])), context

    def _by_position(self, positions: Positions) -> dict[str, Any]:
        return {
            "bias": None if self.relative_bias is None else self.relative_bias(positions),
            "relative": None if self.relative is None else self.relative(positions),
        }

    def finish(self, x: Tensor, padding_mask: Tensor | None) -> Tensor:
        """What follows the last block: final norm and dropout."""
        x = self.final(x if self.final_norm is None else normalise(self.final_norm, x, padding_mask))
        dropout = self.config.final_dropout if self.training else 0.0
        return drop(x, dropout) if dropout else x

    def contexts(
        self,
        positions: Positions,
        *,
        dtype: torch.dtype,
        mask: Mask | None = None,
        padding_mask: Tensor | None = None,
        **more: Any,  # further fields of Context
    ) -> list[Context]:
        """What each layer gets in a pass; layers that are alike share one."""
        shared = Context(
            mask=self.mask(positions, mask, padding_mask),
            positions=positions,
            padding_mask=padding_mask,
            **self._by_position(positions),
            **more,
        )
        kinds = {layer: self._layer_context(shared, layer, dtype) for layer in self.config.kinds()}
        return [kinds[self.config.layer(number)] for number in range(len(self.blocks))]

    def mask(self, positions: Positions, mask: Mask | None = None, padding_mask: Tensor | None = None) -> Mask:
        """The mask of all layers, but for their windows."""
        if mask is None and not self.config.causal:
            mask = NO_MASK
        elif mask is None:
            mask = CAUSAL if positions.columns is None else Mask(positions.distances() >= 0)
        return mask if padding_mask is None else mask & masks.padding(padding_mask)

    def _layer_context(self, shared: Context, layer: LayerConfig, dtype: torch.dtype) -> Context:
        """What differs from layer to layer: the window and the rotary angles."""
        rotary, positions, mask = self.config.rotary(layer), shared.positions, shared.mask
        assert positions is not None
        if layer.window is not None and mask.sequence_lengths is not None:
            mask = mask & Mask(window=layer.window)
        elif layer.window is not None and positions.keys > layer.window:
            mask = mask & masks.window(layer.window, positions.distances(), causal=self.config.causal)
        angles = None if rotary is None else self.rotaries[rotary](positions, dtype=dtype)
        return replace(shared, mask=mask, rotary=angles)
