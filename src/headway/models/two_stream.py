"""The two-stream shape (XLNet, Yang et al. 2019): a language model for any order of the tokens.

The content stream holds what each token is. The query stream predicts tokens: it begins at one learned vector, knows
where its token is but not which, and attends to the content of the tokens that come earlier in the order. Both run
through the same blocks. Attention can also reach a segment memory: the inputs that each layer had for the segment
before, without gradients (Transformer-XL, Dai et al. 2019).

`forward` predicts from left to right unless an order is given, so that the model is trained, scored and decoded as any
decoder is; `content` reads a text in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from headway.layers import masks
from headway.layers.cache import BlockCache, KeyValueCache, SharedCache
from headway.layers.context import Context
from headway.layers.embeddings import Embedding
from headway.layers.masks import NO_MASK, Mask
from headway.layers.positions import Positions, positions_of
from headway.models.config import TwoStreamConfig
from headway.models.decoder import last_positions
from headway.models.heads import apply_head, build_head
from headway.models.outputs import Output
from headway.models.protocol import Model, Part, Shape
from headway.models.stack import Stack, other_segment

Memories = Sequence[Tensor]  # of each layer, (batch, memory, width)


class TwoStream(Model):
    def __init__(self, config: TwoStreamConfig):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.embedding)
        self.stack = Stack(config.stack)
        self.head = build_head(config.stack.block.width, config.embedding.vocab, config.head)

    @property
    def shape(self) -> Shape:
        return "decoder"

    @property
    def generates(self) -> bool:
        return self.head_kind == "language"

    @property
    def encodes(self) -> bool:
        return True

    @property
    def predicts_any_order(self) -> bool:
        return True

    @property
    def parts(self) -> list[Part]:
        return [Part("decoder", "", self)]

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length)
        *,
        padding_mask: Tensor | None = None,  # (batch, length), nonzero = a real token; not with a cache
        order: Tensor | None = None,  # (batch, length), the step at which each token is predicted; None: left to right
        targets: Tensor | None = None,  # (batch, target), the tokens to predict; None: the one behind each token
        memories: Memories | None = None,  # of the segment before
        cache: KeyValueCache | None = None,
        lengths: Sequence[int] | None = None,  # with a cache: new tokens of each row, the rest is padding on the right
        logit_positions: Tensor | None = None,  # (n), of the flattened (batch · target): logits of these only
    ) -> Output:
        """The logits are those of the targets, (batch, target, vocab)."""
        real = None if padding_mask is None else padding_mask.bool()
        where = self.positions(inputs, memories, past=None if cache is None else cache.lengths)
        first = where.keys - inputs.shape[1] if where.columns is None else 0  # the first token's place among the keys
        if targets is None:
            place = torch.arange(inputs.shape[1], device=inputs.device)[None] + first
            targets = (place if where.columns is None else where.columns) - first + 1
        columns = targets + first  # (batch or 1, target)
        query = Positions(columns, columns.shape[1], where.keys, columns=columns)
        if order is None:
            content_mask = masks.CAUSAL if where.columns is None else Mask(where.distances() >= 0)
            query_mask = Mask(query.distances() > 0)
        else:
            content_mask = _beside_memory(masks.permutation(order), first)
            steps = order.gather(1, targets)  # (batch, target)
            query_mask = _beside_memory(Mask(order[:, None, None, :] < steps[:, None, :, None]), first)
        output = self.streams(
            inputs, where, content_mask, queries=(query, query_mask), padding_mask=real, memories=memories, cache=cache
        )
        if cache is not None:
            cache.advance([inputs.shape[1]] * len(inputs) if lengths is None else lengths)
        found = apply_head(
            self.head, output.hidden, self.token_table, padding_mask=None, logit_positions=logit_positions
        )
        return replace(found, memories=output.memories)

    def content(
        self,
        inputs: Tensor,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        memories: Memories | None = None,
        positions: Tensor | None = None,  # unused: positions are relative
    ) -> Output:
        """The content stream alone, every token attending to every other; logits at each token itself."""
        real = None if padding_mask is None else padding_mask.bool()
        where = self.positions(inputs, memories)
        mask = masks.CAUSAL if self.config.stack.causal else NO_MASK
        output = self.streams(inputs, where, mask, padding_mask=real, segments=segments, memories=memories)
        found = apply_head(self.head, output.hidden, self.token_table, padding_mask=real)
        return replace(found, memories=output.memories)

    reference_output = content  # type: ignore[assignment]

    def streams(
        self,
        inputs: Tensor,
        positions: Positions,
        content_mask: Mask,
        *,
        queries: tuple[Positions, Mask] | None = None,  # of the query stream; None: the content stream alone
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,  # (batch, length)
        memories: Memories | None = None,
        cache: KeyValueCache | None = None,
    ) -> Output:
        """The last hidden states of the query stream if there is one, else of the content stream; and the memories of
        the next segment."""
        if segments is not None and queries is not None:
            raise ValueError("segments are compared in the content stream alone: leave them out to predict tokens")
        first = positions.keys - inputs.shape[1] if cache is None else 0
        keys_real = None if padding_mask is None else torch.nn.functional.pad(padding_mask, (first, 0), value=True)
        content = self.embedding(inputs, padding_mask=padding_mask, positions=positions).x
        other = other_segment(segments, memory=first)
        contexts = self.contexts(positions, content_mask, content.dtype, keys_real, other_segment=other)
        query = None
        if queries is not None:
            query = self.embedding.query_vectors(len(inputs), queries[0].queries)
            query_contexts = self.contexts(*queries, query.dtype, keys_real)
        kept = []
        for number, block in enumerate(self.stack.blocks):
            memory = None if memories is None else memories[number]
            source = content if memory is None else torch.cat([memory.to(content), content], dim=1)
            if self.config.memory:
                kept.append(source[:, -self.config.memory :].detach())
            past = None if cache is None else cache.layers[number]
            shared = BlockCache(SharedCache(past, positions), None)
            if query is None or number + 1 < len(self.stack.blocks):  # nothing reads the last content
                content = block(content, replace(contexts[number], source=source), cache=shared)
            if query is not None:
                query = block(query, replace(query_contexts[number], source=source), cache=shared)
        hidden = self.stack.finish(content if query is None else query, padding_mask)
        return Output(hidden, memories=kept or None)

    def contexts(
        self, positions: Positions, mask: Mask, dtype: torch.dtype, keys_real: Tensor | None, **more: Tensor | None
    ) -> list[Context]:
        mask = mask if keys_real is None else mask & masks.padding(keys_real)
        return self.stack.contexts(positions, dtype=dtype, mask=mask, **more)

    def positions(
        self, inputs: Tensor, memories: Memories | None = None, *, past: Sequence[int] | None = None
    ) -> Positions:
        past = [memories[0].shape[1]] * len(inputs) if memories else past
        return positions_of(inputs.shape[1], device=inputs.device, past=past)

    def new_cache(self, rows: int, *, capacity: int = 0) -> KeyValueCache:
        return KeyValueCache(self.config.stack.layers, rows=rows, capacity=capacity)

    def step(
        self, ids: Tensor, cache: KeyValueCache, *, lengths: Sequence[int] | None = None, every: bool = False
    ) -> Tensor:
        """As Decoder.step: the logits of the token behind each row's last new one."""
        last = None if every else last_positions(ids, lengths)
        logits = self(ids, cache=cache, lengths=lengths, logit_positions=last).logits
        assert logits is not None
        return logits


def _beside_memory(mask: Mask, memory: int) -> Mask:
    """All of a segment memory in front of the keys may be attended to."""
    if not memory or mask.allowed is None:
        return mask
    return Mask(torch.nn.functional.pad(mask.allowed, (memory, 0), value=True))
