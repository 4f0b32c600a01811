"""The bidirectional language model of ELMo (Peters et al. 2018): words from their characters, LSTMs from left to right
and from right to left. Its hidden states are a learned mix of all layers, so that a head on it chooses how much syntax
(lower layers) and meaning (upper layers) it uses. With a language head it predicts the next word in each direction."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headway.layers.projected_lstm import BidirectionalStack, LSTMState
from headway.layers.tap import Tap
from headway.models.config import BiLMConfig
from headway.models.heads import apply_head, build_head
from headway.models.outputs import Output
from headway.models.protocol import Model


class BiLM(Model):
    def __init__(self, config: BiLMConfig):
        super().__init__()
        self.config = config
        self.embedding = config.embedding.build()
        self.stack = BidirectionalStack(config.stack)
        self.head = build_head(self.head_width, config.vocab, config.head)
        self.final = Tap()

    @property
    def head_width(self) -> int:
        """A language head reads one direction, every other head both."""
        return self.config.stack.width * (1 if self.head_kind == "language" else 2)

    @property
    def encodes(self) -> bool:
        return True

    @property
    def output_head(self) -> nn.Module | None:
        return self.head

    @property
    def vocab_size(self) -> int | None:
        return self.config.vocab or None

    def forward(
        self,
        inputs: Tensor,  # characters (batch, word, character)
        *,
        padding_mask: Tensor | None = None,  # (batch, word), nonzero = real; padding is on the right
        logit_positions: Tensor | None = None,  # (n), of the flattened (batch · word · 2): logits of these only
        **unused: Any,
    ) -> Output:
        """A language head gives logits (batch, word, 2, vocab): of the next word, by the forward layers, and of the
        word before, by the backward layers; (n, vocab) at given positions."""
        real = None if padding_mask is None else padding_mask.bool()
        layers, _ = self.layers(inputs, padding_mask=real)
        if self.head_kind == "language":
            assert self.head is not None
            width = self.config.stack.width
            sides = torch.stack(layers[-1].split(width, dim=-1), dim=2)  # (batch, word, 2, width)
            found = self.head(sides.flatten(1, 2), table=None, padding_mask=None, logit_positions=logit_positions)
            logits = found.logits if logit_positions is not None else found.logits.unflatten(1, (-1, 2))
            return Output(self.final(self.stack.mix(layers)), logits=logits)
        return apply_head(self.head, self.final(self.stack.mix(layers)), None, padding_mask=real)

    def layers(
        self, inputs: Tensor, *, padding_mask: Tensor | None = None, states: list[LSTMState] | None = None
    ) -> tuple[list[Tensor], list[LSTMState]]:
        """Every layer (batch, word, 2 · width), the characters' vectors first, and the states after the last word."""
        embedded = self.embedding(inputs, padding_mask=padding_mask)
        return self.stack(embedded.x, padding_mask=padding_mask, states=states)
