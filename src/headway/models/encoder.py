"""The encoder shape: everything looks at everything (BERT-like; with patches for tokens, ViT-like)."""

from __future__ import annotations

from torch import Tensor, nn

from headway.layers.embeddings import Embedding, PatchConfig, PatchEmbedding
from headway.models.config import EncoderConfig
from headway.models.heads import build_head
from headway.models.outputs import Output
from headway.models.stack import Stack, positions_of


class Encoder(nn.Module):
    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.config = config
        embedding, width = config.embedding, config.stack.block.width
        images = isinstance(embedding, PatchConfig)
        self.embedding = PatchEmbedding(embedding) if isinstance(embedding, PatchConfig) else Embedding(embedding)
        self.stack = Stack(config.stack)
        self.head = build_head(width, 0 if images else embedding.vocab, config.head)  # type: ignore[union-attr]

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length), or images (batch, channel, height, width)
        *,
        mask: Tensor | None = None,  # (batch, length), nonzero = a real token
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        packing: Tensor | tuple[int, ...] | None = None,
        asked: Tensor | None = None,  # for heads that say words: only at these positions (batch, length)
    ) -> Output:
        hidden = self.encode(inputs, mask=mask, segments=segments, positions=positions, packing=packing)
        if self.head is None:
            return Output(hidden)
        table = self.embedding.tokens.table if isinstance(self.embedding, Embedding) else None
        return self.head(hidden, table=table, mask=mask, **({} if asked is None else {"asked": asked}))

    def encode(
        self,
        inputs: Tensor,
        *,
        mask: Tensor | None = None,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        packing: Tensor | tuple[int, ...] | None = None,
    ) -> Tensor:  # (batch, length, width)
        keep = None if mask is None else mask.bool()
        if isinstance(self.embedding, PatchEmbedding):
            x = self.embedding(inputs)
            at, bound = positions_of(x.shape[1], past=0, keep=keep, given=positions, device=x.device)
        else:
            length = inputs.shape[1]
            at, bound = positions_of(length, past=0, keep=keep, given=positions, device=inputs.device)
            x = self.embedding(inputs, positions=at, bound=bound, segments=segments)
        return self.stack(x, positions=at, bound=bound, keep=keep, packing=packing)
