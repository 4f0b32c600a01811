"""Prefill: the logits after the last token of each prompt. The last block computes its keys and values for all tokens,
and everything else for the last few only, since nothing depends on the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from headway.engine.inplace import FastBlock, has_hooks
from headway.engine.supported import PREFILL, unsupported_config
from headway.layers.attention import Attention
from headway.layers.block import Block
from headway.layers.cache import BlockCache, KeyValueCache, LayerCache
from headway.layers.embedded import Embedded
from headway.layers.masks import NO_MASK, padding
from headway.layers.positions import Positions, positions_of
from headway.models.decoder import Decoder, last_positions
from headway.models.heads import apply_head
from headway.models.stack import Stack

TAIL = 16  # tokens that the last block computes: a one-row GEMM uses another kernel and rounds differently


def applies(decoder: Decoder, ids: Tensor, lengths: Sequence[int] | None) -> bool:
    """Whether there is something to leave out, in a decoder made of known parts, and no hook that would miss it."""
    blocks = decoder.stack.blocks
    if tail_start(ids, lengths) == 0 or not blocks or torch.is_grad_enabled() or decoder.training:
        return False
    norm, parts = decoder.stack.final_norm, (decoder, decoder.stack, blocks[-1], getattr(blocks[-1], "attention", None))
    known = (Decoder, Stack, Block, FastBlock, Attention)
    if any(type(part) not in known for part in parts) or unsupported_config(decoder.config, PREFILL) is not None:
        return False
    return not has_hooks(blocks[-1]) and not (norm is not None and has_hooks(norm))


def tail_start(ids: Tensor, lengths: Sequence[int] | None) -> int:
    """The first token that the last block computes: at least TAIL before the end of each row."""
    return max(0, (ids.shape[1] if lengths is None else min(lengths)) - TAIL)


class WrittenCache(LayerCache):
    """A layer's keys and values that hold the new tokens already."""

    def __init__(self, keys: Tensor, values: Tensor):
        super().__init__()
        self._keys, self._values, self.rows, self.columns = keys, values, len(keys), keys.shape[2]

    def append(self, keys: Tensor, values: Tensor, positions: Positions | None = None) -> tuple[Tensor, Tensor]:
        return self.keys, self.values


def prefill(decoder: Decoder, ids: Tensor, cache: KeyValueCache, lengths: Sequence[int] | None) -> Tensor:
    """As `decoder.step(ids, cache, lengths=lengths)`."""
    start, stack = tail_start(ids, lengths), decoder.stack
    positions = positions_of(ids.shape[1], device=ids.device, past=cache.lengths)
    embedded: Embedded = decoder.embedding(ids, positions=positions)
    x, shared = embedded.x, embedded.query_key_positions
    more: dict[str, Any] = {
        "dtype": x.dtype,
        "memory": cache.memory,
        "memory_mask": NO_MASK if cache.memory_padding_mask is None else padding(cache.memory_padding_mask),
        "memory_positions": cache.memory_positions,
    }
    contexts = stack.contexts(positions, query_key_positions=shared, **more)
    for number, block in enumerate(stack.blocks[:-1]):
        x = block(x, contexts[number], cache=cache.block(number))
    columns = None if positions.columns is None else positions.columns[:, start:]
    tail = replace(positions, ids=positions.ids[:, start:], queries=positions.queries - start, columns=columns)
    context = stack.contexts(tail, query_key_positions=None if shared is None else shared[:, start:], **more)[-1]
    block, own = stack.blocks[-1], cache.block(len(stack.blocks) - 1)
    assert isinstance(block, Block) and own.attention is not None
    new = block.attention.keys_and_values(block.attention_residual.before(x, None), contexts[-1])
    written = WrittenCache(*own.attention.append(*new, positions))
    x = stack.finish(block(x[:, start:], context, cache=BlockCache(written, own.cross)), None)
    cache.advance([ids.shape[1]] * len(ids) if lengths is None else lengths)
    last = last_positions(ids[:, start:], None if lengths is None else [length - start for length in lengths])
    logits = apply_head(decoder.head, x, decoder.token_table, padding_mask=None, logit_positions=last).logits
    assert logits is not None
    return logits
