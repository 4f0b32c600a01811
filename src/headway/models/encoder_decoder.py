"""The 2017 shape: an encoder encodes the source, a decoder with cross-attention to it generates the target
(T5-, BART-like)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from headway.layers.cache import Encoded, KeyValueCache
from headway.layers.masks import Mask
from headway.models.config import EncoderDecoderConfig
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder
from headway.models.heads import apply_head
from headway.models.outputs import Output
from headway.models.protocol import HeadKind, Inputs, Model, Part


class EncoderDecoder(Model):
    def __init__(self, config: EncoderDecoderConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.decoder = Decoder(config.decoder)
        if config.shared_embedding:
            self.decoder.embedding.tokens = self.encoder.embedding.tokens

    @property
    def generates(self) -> bool:
        return self.decoder.generates

    @property
    def reads_source(self) -> bool:
        return True

    @property
    def head_kind(self) -> HeadKind | None:
        return self.decoder.head_kind

    @property
    def parts(self) -> list[Part]:
        return [Part("encoder", "encoder.", self.encoder), Part("decoder", "decoder.", self.decoder)]

    @property
    def inputs(self) -> Inputs:
        return self.encoder.inputs

    @property
    def start_id(self) -> int:
        return self.config.start_id

    @property
    def shares_tokens(self) -> bool:
        return self.config.shared_embedding

    @property
    def max_length(self) -> int | None:
        return self.encoder.max_length

    @property
    def max_context(self) -> int | None:
        return self.decoder.max_context

    @property
    def vocab_size(self) -> int | None:
        return self.decoder.vocab_size

    @property
    def source_vocab_size(self) -> int | None:
        return self.encoder.vocab_size

    @property
    def token_table(self) -> Tensor | None:
        return self.decoder.token_table

    @property
    def rotary_depends_on_length(self) -> bool:
        return self.decoder.rotary_depends_on_length

    def forward(
        self,
        inputs: Tensor,  # what the encoder reads: token ids (batch, source)
        *,
        decoder_ids: Tensor,  # (batch, target), shifted right: starts with start_id
        padding_mask: Tensor | None = None,
        decoder_padding_mask: Tensor | None = None,
        mask: Mask | None = None,
        decoder_mask: Mask | None = None,
        positions: Tensor | None = None,
        decoder_positions: Tensor | None = None,
    ) -> Output:
        source = self.encoder.embed(inputs, padding_mask=padding_mask, positions=positions)
        memory = self.encoder.stack(source, mask=mask)
        output = self.decoder(
            decoder_ids,
            padding_mask=decoder_padding_mask,
            mask=decoder_mask,
            positions=decoder_positions,
            memory=memory,
            memory_padding_mask=source.padding_mask,
            memory_positions=source.query_key_positions,
        )
        output.memory = memory
        output.memory_logits = apply_head(self.encoder.head, memory, None, padding_mask=source.padding_mask).logits
        return output

    def encode_to_cache(
        self, inputs: Tensor, *, padding_mask: Tensor | None = None, capacity: int = 0
    ) -> KeyValueCache:
        """Encodes the source once; `step` then needs only the cache."""
        return self.new_cache(self.encode(inputs, padding_mask=padding_mask), capacity=capacity)

    def encode(self, inputs: Tensor, *, padding_mask: Tensor | None = None) -> Encoded:
        """The encoder's output, for as many caches as are wanted."""
        source = self.encoder.embed(inputs, padding_mask=padding_mask)
        positions = source.query_key_positions
        if positions is not None:
            positions = positions.expand(len(inputs), -1, -1)
        return Encoded(self.encoder.stack(source), source.padding_mask, positions)

    def new_cache(self, encoded: Encoded, *, capacity: int = 0) -> KeyValueCache:
        """An empty cache whose rows attend to these sources."""
        cache = self.decoder.new_cache(len(encoded.memory), capacity=capacity)
        cache.memory, cache.memory_padding_mask = encoded.memory, encoded.padding_mask
        cache.memory_positions = encoded.positions
        return cache

    def step(
        self, ids: Tensor, cache: KeyValueCache, *, lengths: Sequence[int] | None = None, every: bool = False
    ) -> Tensor:
        return self.decoder.step(ids, cache, lengths=lengths, every=every)
