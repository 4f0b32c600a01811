"""A time from 0 to 1 as a vector: sinusoids through two linear layers (Ho et al. 2020; Peebles & Xie 2023)."""

from __future__ import annotations

from torch import Tensor, nn

from headway.layers.linear import Linear
from headway.layers.positions import sinusoids

SCALE = 1000.0  # times are spread over the positions that sinusoids tell apart
FREQUENCIES = 128


class TimeEmbedding(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.up = Linear(FREQUENCIES, width)
        self.down = Linear(width, width)

    def forward(self, time: Tensor) -> Tensor:  # (batch,) → (batch, width)
        waves = sinusoids(time * SCALE, FREQUENCIES, layout="halves").to(self.up.weight.dtype)
        return self.down(nn.functional.silu(self.up(waves)))
