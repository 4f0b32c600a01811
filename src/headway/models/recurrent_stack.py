"""Recurrent layers as a model: in both directions an encoder (for labels of a text or of its words), from left to right
a decoder (a language model).

The decoder has no limit of length: a state of fixed size stands for all that was read. In training it can go on from
the state of the window before, without gradients beyond it (truncated back-propagation through time, Williams & Peng
1990).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.embeddings import Embedding
from headway.layers.linear import Linear
from headway.layers.recurrent import STATES, Recurrent
from headway.models.config import RecurrentDecoderConfig, RecurrentEncoderConfig
from headway.models.decoder import last_positions
from headway.models.heads import apply_head, build_head
from headway.models.outputs import Output
from headway.models.protocol import Model
from headway.models.recurrent import RecurrentCache


class RecurrentEncoder(Model):
    def __init__(self, config: RecurrentEncoderConfig):
        super().__init__()
        self.config = config
        self.embedding = Embedding(config.embedding)
        self.layers = Recurrent(
            config.cell,
            config.embedding.width,
            config.hidden,
            layers=config.layers,
            both=True,
            dropout=config.dropout,
        )
        self.head = build_head(self.layers.width, config.embedding.vocab, config.head)
        self.dropout = config.dropout

    @property
    def output_head(self) -> nn.Module | None:
        return self.head

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length)
        *,
        padding_mask: Tensor | None = None,  # (batch, length), nonzero = real; padding is on the right
        segments: Tensor | None = None,
    ) -> Output:
        real = None if padding_mask is None else padding_mask.bool()
        x = self.embedding(inputs, padding_mask=real, segments=segments).x
        hidden, _ = self.layers(x, padding_mask=real)
        if self.training and self.dropout:
            hidden = drop(hidden, self.dropout)
        return apply_head(self.head, hidden, self.token_table, padding_mask=real)


class RecurrentDecoder(Model):
    def __init__(self, config: RecurrentDecoderConfig):
        super().__init__()
        self.config = config
        width = config.embedding.width
        self.embedding = Embedding(config.embedding)
        self.layers = Recurrent(config.cell, width, config.hidden, layers=config.layers, dropout=config.dropout)
        self.project = Linear(config.hidden, width) if config.hidden != width else None
        self.head = build_head(width, config.embedding.vocab, config.head)
        self.dropout = config.dropout
        self.carried: Tensor | None = None  # (slot, layers, states · hidden): what training windows end with

    @property
    def generates(self) -> bool:
        return True

    @property
    def carries_state(self) -> bool:
        return True

    @property
    def output_head(self) -> nn.Module | None:
        return self.head

    def forward(
        self,
        inputs: Tensor,  # token ids (batch, length)
        *,
        padding_mask: Tensor | None = None,  # on the right, where it changes nothing
        cache: RecurrentCache | None = None,
        lengths: Sequence[int] | None = None,  # with a cache: new tokens of each row, the rest is padding on the right
        logit_positions: Tensor | None = None,  # (n), of the flattened (batch · length): logits of these only
        read_slots: Tensor | None = None,  # (batch, slot), one-hot: the state to begin with; all zero: none
        write_slots: Tensor | None = None,  # (batch, slot), one-hot: where the last state is kept
    ) -> Output:
        x = self.embedding(inputs).x
        state = None if cache is None else cache.state
        if read_slots is not None and self.carried is not None:
            state = torch.einsum("bs,slh->blh", read_slots.to(x.dtype), self.carried)
        x, last = self.layers(x, state=state, lengths=lengths)
        if cache is not None:
            cache.state = last
            cache.advance([inputs.shape[1]] * len(inputs) if lengths is None else lengths)
        if write_slots is not None:
            self._carry(last.detach(), write_slots.to(last.dtype))
        if self.project is not None:
            x = self.project(x)
        x = drop(x, self.dropout) if self.training and self.dropout else x
        return apply_head(self.head, x, self.token_table, padding_mask=None, logit_positions=logit_positions)

    def _carry(self, state: Tensor, slots: Tensor) -> None:
        written = torch.einsum("bs,blh->slh", slots, state)
        if self.carried is None:
            self.carried = written
        else:
            self.carried = self.carried * (1 - slots.sum(0))[:, None, None] + written

    def new_cache(self, rows: int, *, capacity: int = 0) -> RecurrentCache:
        size = STATES[self.config.cell] * self.config.hidden
        like = next(self.layers.parameters())
        return RecurrentCache(state=torch.zeros(rows, self.config.layers, size, dtype=like.dtype, device=like.device))

    def step(
        self, ids: Tensor, cache: RecurrentCache, *, lengths: Sequence[int] | None = None, every: bool = False
    ) -> Tensor:
        """As Decoder.step."""
        last = None if every else last_positions(ids, lengths)
        logits = self(ids, cache=cache, lengths=lengths, logit_positions=last).logits
        assert logits is not None
        return logits
