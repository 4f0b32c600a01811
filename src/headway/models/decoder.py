"""The decoder shape: each token looks back (GPT-like), and at a source if there is one."""

from __future__ import annotations

from torch import Tensor, nn

from headway.layers.cache import KeyValueCache
from headway.layers.embeddings import Embedding
from headway.models.config import DecoderConfig
from headway.models.heads import build_head
from headway.models.outputs import Output
from headway.models.stack import Stack, positions_of


class Decoder(nn.Module):
    def __init__(self, config: DecoderConfig):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.embedding)
        self.stack = Stack(config.stack)
        self.head = build_head(config.stack.block.width, config.embedding.vocab, config.head)

    def forward(
        self,
        ids: Tensor,  # (batch, length)
        *,
        mask: Tensor | None = None,  # (batch, length) of these tokens, nonzero = real; the cache remembers the past's
        positions: Tensor | None = None,
        packing: Tensor | None = None,
        cache: KeyValueCache | None = None,
        memory: Tensor | None = None,
        memory_mask: Tensor | None = None,
        last: bool = False,  # hidden state and logits of the last position only
    ) -> Output:
        batch, length = ids.shape
        past = cache.length if cache is not None else 0
        keep = None if mask is None else mask.bool()
        if cache is not None:
            keep = cache.extend_mask(mask, batch=batch, new=length, device=ids.device)
            memory = cache.memory if memory is None else memory
            memory_mask = cache.memory_mask if memory_mask is None else memory_mask
        at, bound = positions_of(length, past=past, keep=keep, given=positions, device=ids.device)
        x = self.embedding(ids, positions=at, bound=bound)
        hidden = self.stack(
            x,
            positions=at,
            bound=bound,
            keep=keep,
            packing=packing,
            cache=cache,
            memory=memory,
            memory_keep=None if memory_mask is None else memory_mask.bool(),
            last=last,
        )
        if self.head is None:
            return Output(hidden, cache=cache)
        output = self.head(hidden, table=self.embedding.tokens.table, mask=mask)
        output.hidden, output.cache = hidden, cache
        return output

    def new_cache(self, *, capacity: int = 0) -> KeyValueCache:
        return KeyValueCache(self.config.stack.layers, capacity=capacity)

    def step(self, ids: Tensor, cache: KeyValueCache, *, mask: Tensor | None = None, last: bool = True) -> Tensor:
        """Feeds new tokens, remembers them, and returns the logits after the last (batch, vocab), or after each."""
        logits = self(ids, mask=mask, cache=cache, last=last).logits
        return logits[:, -1] if last else logits
