"""The encoder shape: every position attends to every other (BERT-like; with patches for tokens, ViT-like)."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.layers.embedded import Embedded
from headway.layers.masks import Mask
from headway.models.config import EncoderConfig
from headway.models.heads import apply_head, build_head, end_column
from headway.models.mask_decoder import MaskDecoder
from headway.models.outputs import Output
from headway.models.protocol import Inputs, Model, Part
from headway.models.stack import Stack, packed


class Encoder(Model):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        self.embedding = config.embedding.build()
        self.stack = Stack(config.stack)
        self.head = build_head(config.stack.block.width, config.embedding.vocab, config.head)

    @property
    def parts(self) -> list[Part]:
        return [Part("encoder", "", self)]

    @property
    def inputs(self) -> Inputs:
        return self.config.embedding.inputs

    @property
    def image_channels(self) -> int | None:
        return self.embedding.config.channels if self.inputs == "image" else None

    @property
    def max_length(self) -> int | None:
        limits = [self.config.embedding.max_length]
        if self.mask_decoder is not None:
            limits.append(self.config.head.mask_decoder.positions.count)
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def segments(self) -> int:
        return 2 if self.config.stack.compares_segments else super().segments

    @property
    def pools_one_token(self) -> bool:
        head = self.config.head
        one = self.head_kind == "classify" and head.pool in ("first", "last") and not head.distilled
        return one and self.stack.computes_columns

    @property
    def mask_decoder(self) -> MaskDecoder | None:
        """What takes the place of the stack's last block where the head predicts masked tokens."""
        return getattr(self.head, "mask_decoder", None)

    def forward(
        self,
        inputs: Tensor,  # what the front end reads: token ids (batch, length), images (batch, channel, height, width)
        *,
        padding_mask: Tensor | None = None,  # (batch, length), nonzero = real
        mask: Mask | None = None,  # in place of the full one
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        sequence_lengths: tuple[int, ...] | None = None,  # of sequences laid end to end in one row
        logit_positions: Tensor | None = None,  # (n), of the flattened (batch · length): logits of these only
        condition: Tensor | None = None,
        pooled_only: bool = False,  # the last block may compute only the token that the head reads; then so is `hidden`
    ) -> Output:
        embedded = self.embed(inputs, padding_mask=padding_mask, segments=segments, positions=positions)
        mask, decoder, real = packed(mask, sequence_lengths, causal=False), self.mask_decoder, embedded.padding_mask
        if decoder is not None:
            hidden = decoder(self.stack, embedded, mask=mask)
        elif pooled_only and self.pools_one_token and mask is None and embedded.is_plain:
            hidden, real = self.stack(embedded, condition=condition, columns=self._pooled_column(embedded)), None
        else:
            hidden = self.stack(embedded, mask=mask, condition=condition)
        return apply_head(self.head, hidden, self.token_table, padding_mask=real, logit_positions=logit_positions)

    def _pooled_column(self, embedded: Embedded) -> Tensor:  # (batch, 1)
        real, how = embedded.padding_mask, self.config.head.pool
        if real is not None:
            return end_column(real, how)[:, None]
        batch, length, _ = embedded.x.shape
        return torch.full((batch, 1), 0 if how == "first" else length - 1, device=embedded.x.device)

    def embed(
        self,
        inputs: Tensor,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
    ) -> Embedded:
        real = None if padding_mask is None else padding_mask.bool()
        return self.embedding(inputs, padding_mask=real, segments=segments, positions=positions)

    def encode(
        self,
        inputs: Tensor,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        sequence_lengths: tuple[int, ...] | None = None,
    ) -> Tensor:  # (batch, length, width)
        """The hidden states alone, without the head."""
        embedded = self.embed(inputs, padding_mask=padding_mask, segments=segments, positions=positions)
        return self.stack(embedded, mask=packed(None, sequence_lengths, causal=False))
