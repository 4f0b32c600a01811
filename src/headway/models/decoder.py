"""The decoder shape: each token looks back (GPT-like), and at a source if there is one."""

from __future__ import annotations

from torch import Tensor

from headway.layers.cache import KeyValueCache
from headway.layers.embeddings import Embedding
from headway.models.config import DecoderConfig
from headway.models.heads import build_head
from headway.models.outputs import Output
from headway.models.protocol import Model, Part
from headway.models.stack import Stack, positions_of


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
    def vocab_size(self) -> int:
        return self.config.embedding.vocab

    @property
    def token_table(self) -> Tensor:
        return self.embedding.tokens.table

    @property
    def rotary_depends_on_length(self) -> bool:
        rotary = self.config.stack.block.attention.rotary
        return rotary is not None and rotary.scaling is not None and rotary.scaling.kind in ("dynamic", "longrope")

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length)
        *,
        padding_mask: Tensor | None = None,  # (batch, length), nonzero = a real token; the cache keeps the past's
        positions: Tensor | None = None,
        sequence_lengths: Tensor | None = None,
        cache: KeyValueCache | None = None,
        memory: Tensor | None = None,
        memory_padding_mask: Tensor | None = None,
        last: bool = False,  # hidden state and logits of the last position only
    ) -> Output:
        batch, length = inputs.shape
        past = cache.length if cache is not None else 0
        keep = None if padding_mask is None else padding_mask.bool()
        if cache is not None:
            keep = cache.extend_mask(padding_mask, batch=batch, new=length, device=inputs.device)
            memory = cache.memory if memory is None else memory
            memory_padding_mask = cache.memory_mask if memory_padding_mask is None else memory_padding_mask
        at, max_position = positions_of(length, past=past, keep=keep, given=positions, device=inputs.device)
        x = self.embedding(inputs, positions=at, max_position=max_position)
        hidden = self.stack(
            x,
            positions=at,
            max_position=max_position,
            padding_mask=keep,
            sequence_lengths=sequence_lengths,
            cache=cache,
            memory=memory,
            memory_padding_mask=None if memory_padding_mask is None else memory_padding_mask.bool(),
            last=last,
        )
        if self.head is None:
            return Output(hidden, cache=cache)
        output = self.head(hidden, table=self.embedding.tokens.table, padding_mask=padding_mask)
        output.hidden, output.cache = hidden, cache
        return output

    def new_cache(self, *, capacity: int = 0) -> KeyValueCache:
        return KeyValueCache(self.config.stack.layers, capacity=capacity)

    def step(self, ids: Tensor, cache: KeyValueCache, *, mask: Tensor | None = None, last: bool = True) -> Tensor:
        """Feeds new tokens, remembers them, and returns the logits after the last (batch, vocab), or after each."""
        logits = self(ids, padding_mask=mask, cache=cache, last=last).logits
        return logits[:, -1] if last else logits
