"""The decoder shape: causal self-attention (GPT-like), and cross-attention to a source if there is one."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.layers.cache import KeyValueCache
from headway.layers.embeddings import Embedding
from headway.layers.masks import Mask
from headway.layers.positions import positions_of
from headway.models.config import DecoderConfig
from headway.models.heads import apply_head, build_head
from headway.models.outputs import Output
from headway.models.protocol import Model, Part
from headway.models.stack import Stack, packed


class Decoder(Model):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.embedding)
        self.stack = Stack(config.stack)
        self.head = build_head(config.stack.block.width, config.embedding.vocab, config.head)

    @property
    def generates(self) -> bool:
        return self.head_kind == "language"

    @property
    def parts(self) -> list[Part]:
        return [Part("decoder", "", self)]

    @property
    def max_length(self) -> int | None:
        return self.config.context or self.config.embedding.max_length

    @property
    def max_context(self) -> int | None:
        return self.config.context

    @property
    def packs_sequences(self) -> bool:
        return not self.rotary_depends_on_length

    @property
    def rotary_depends_on_length(self) -> bool:
        return any(rotary.depends_on_length for rotary in self.stack.rotaries)

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length)
        *,
        padding_mask: Tensor | None = None,  # (batch, length), nonzero = a real token; not with a cache
        mask: Mask | None = None,  # in place of the causal one
        positions: Tensor | None = None,
        sequence_lengths: tuple[int, ...] | None = None,  # of sequences laid end to end in one row
        memory: Tensor | None = None,  # (batch, source, width)
        memory_padding_mask: Tensor | None = None,
        memory_positions: Tensor | None = None,
        cache: KeyValueCache | None = None,
        lengths: Sequence[int] | None = None,  # with a cache: new tokens of each row, the rest is padding on the right
        logit_positions: Tensor | None = None,  # (n), of the flattened (batch · length): logits of these only
        condition: Tensor | None = None,
    ) -> Output:
        if cache is not None:
            if padding_mask is not None:
                raise ValueError(
                    "with a cache, give the number of new tokens of each row (lengths), not a padding mask"
                )
            memory, memory_padding_mask = cache.memory, cache.memory_padding_mask
            memory_positions = cache.memory_positions
        real = None if padding_mask is None else padding_mask.bool()
        where = positions_of(
            inputs.shape[1],
            device=inputs.device,
            given=positions,
            padding_mask=real,
            past=None if cache is None else cache.lengths,
        )
        hidden = self.stack(
            self.embedding(inputs, padding_mask=real, positions=where),
            mask=packed(mask, sequence_lengths, causal=True),
            memory=memory,
            memory_padding_mask=memory_padding_mask,
            memory_positions=memory_positions,
            cache=cache,
            condition=condition,
        )
        if cache is not None:
            cache.advance([inputs.shape[1]] * len(inputs) if lengths is None else lengths)
        return apply_head(self.head, hidden, self.token_table, padding_mask=real, logit_positions=logit_positions)

    def new_cache(self, rows: int, *, capacity: int = 0) -> KeyValueCache:
        return KeyValueCache(self.config.stack.layers, rows=rows, capacity=capacity)

    def step(
        self, ids: Tensor, cache: KeyValueCache, *, lengths: Sequence[int] | None = None, every: bool = False
    ) -> Tensor:
        """Appends new tokens (row, new) to the rows of the cache, right-padded where `lengths` are less than `new`.
        Returns the logits after each row's last new token (row, vocab), or after `every` token (row, new, vocab)."""
        last = None if every else last_positions(ids, lengths)
        logits = self(ids, cache=cache, lengths=lengths, logit_positions=last).logits
        assert logits is not None
        return logits


def last_positions(ids: Tensor, lengths: Sequence[int] | None) -> Tensor:
    """The last token of each row, as an index of the flattened (row · new)."""
    rows, new = ids.shape
    if lengths is None:
        return torch.arange(new - 1, rows * new, new, device=ids.device)
    return torch.tensor([row * new + length - 1 for row, length in enumerate(lengths)], device=ids.device)
