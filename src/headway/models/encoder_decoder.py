"""The 2017 shape: an encoder reads the source, a decoder writes the target looking at it
(T5-, BART-like)."""

from __future__ import annotations

from torch import Tensor, nn

from headway.layers.cache import KeyValueCache
from headway.layers.embeddings import Embedding
from headway.models.config import EncoderDecoderConfig
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder
from headway.models.outputs import Output


class EncoderDecoder(nn.Module):
    def __init__(self, config: EncoderDecoderConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.decoder = Decoder(config.decoder)
        if config.shared_embedding:
            assert isinstance(self.encoder.embedding, Embedding)
            self.decoder.embedding.tokens = self.encoder.embedding.tokens

    def forward(
        self,
        ids: Tensor,  # (batch, source)
        *,
        decoder_ids: Tensor,  # (batch, target), shifted right: starts with start_id
        mask: Tensor | None = None,
        decoder_mask: Tensor | None = None,
        positions: Tensor | None = None,
        decoder_positions: Tensor | None = None,
    ) -> Output:
        memory = self.encoder.encode(ids, mask=mask, positions=positions)
        output = self.decoder(
            decoder_ids, mask=decoder_mask, positions=decoder_positions, memory=memory, memory_mask=mask
        )
        output.memory = memory
        return output

    def start(self, ids: Tensor, *, mask: Tensor | None = None, capacity: int = 0) -> KeyValueCache:
        """Reads the source once; `step` then needs only the cache."""
        cache = self.decoder.new_cache(capacity=capacity)
        cache.memory, cache.memory_mask = self.encoder.encode(ids, mask=mask), mask
        return cache

    def step(self, ids: Tensor, cache: KeyValueCache, *, mask: Tensor | None = None, last: bool = True) -> Tensor:
        return self.decoder.step(ids, cache, mask=mask, last=last)
