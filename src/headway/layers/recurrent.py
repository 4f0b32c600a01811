"""What came before: additive attention over an encoder's states (Bahdanau, Cho & Bengio 2015). The cells
themselves, GRU, LSTM and the vanilla RNN, are torch's."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from headway.layers.linear import Linear
from headway.layers.tap import Tap


class AdditiveAttention(nn.Module):
    """α = softmax(vᵀ tanh(W s + U h)), context = Σ α h: how well each source state fits the decoder's present state."""

    def __init__(self, state: int, memory: int, hidden: int):
        super().__init__()
        self.query = Linear(state, hidden)
        self.key = Linear(memory, hidden, bias=False)
        self.energy = Linear(hidden, 1, bias=False)
        self.weights = Tap()

    def forward(
        self, state: Tensor, *, memory: Tensor, keys: Tensor, padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """state (batch, state); memory (batch, source, memory); keys = self.key(memory), computed once.
        → context (batch, memory), weights (batch, source)."""
        scores = self.energy(torch.tanh(self.query(state)[:, None] + keys))[..., 0]  # (batch, source)
        if padding_mask is not None:
            scores = scores.masked_fill(~padding_mask, -math.inf)
        weights = scores.softmax(-1)
        return (weights[:, None] @ memory)[:, 0], weights
