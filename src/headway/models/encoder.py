"""The encoder shape: everything looks at everything (BERT-like; with patches for tokens, ViT-like)."""

from __future__ import annotations

from torch import Tensor

from headway.layers.embeddings import Embedding, PatchConfig, PatchEmbedding
from headway.models.config import EncoderConfig
from headway.models.heads import build_head
from headway.models.outputs import Output
from headway.models.protocol import Inputs, Model, Part
from headway.models.stack import Stack, positions_of


class Encoder(Model):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        embedding, width = config.embedding, config.stack.block.width
        images = isinstance(embedding, PatchConfig)
        self.embedding = PatchEmbedding(embedding) if isinstance(embedding, PatchConfig) else Embedding(embedding)
        self.stack = Stack(config.stack)
        self.head = build_head(width, 0 if images else embedding.vocab, config.head)  # type: ignore[union-attr]

    @property
    def parts(self) -> list[Part]:
        return [Part("encoder", "", self)]

    @property
    def inputs(self) -> Inputs:
        return self.config.embedding.inputs

    @property
    def max_length(self) -> int | None:
        return self.config.embedding.max_length

    @property
    def vocab_size(self) -> int | None:
        return self.config.embedding.vocab or None

    @property
    def token_table(self) -> Tensor | None:
        return self.embedding.token_table

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length), or images (batch, channel, height, width)
        *,
        padding_mask: Tensor | None = None,  # (batch, length), nonzero = a real token
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        sequence_lengths: Tensor | tuple[int, ...] | None = None,
        logit_positions: Tensor | None = None,  # for heads that say words: only at these positions (batch, length)
    ) -> Output:
        hidden = self.encode(
            inputs, padding_mask=padding_mask, segments=segments, positions=positions, sequence_lengths=sequence_lengths
        )
        if self.head is None:
            return Output(hidden)
        return self.head(
            hidden,
            table=self.token_table,
            padding_mask=padding_mask,
            **({} if logit_positions is None else {"logit_positions": logit_positions}),
        )

    def encode(
        self,
        inputs: Tensor,
        *,
        padding_mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        sequence_lengths: Tensor | tuple[int, ...] | None = None,
    ) -> Tensor:  # (batch, length, width)
        keep = None if padding_mask is None else padding_mask.bool()
        if isinstance(self.embedding, PatchEmbedding):
            x = self.embedding(inputs)
            at, max_position = positions_of(x.shape[1], past=0, keep=keep, given=positions, device=x.device)
        else:
            length = inputs.shape[1]
            at, max_position = positions_of(length, past=0, keep=keep, given=positions, device=inputs.device)
            x = self.embedding(inputs, positions=at, max_position=max_position, segments=segments)
        return self.stack(
            x, positions=at, max_position=max_position, padding_mask=keep, sequence_lengths=sequence_lengths
        )
