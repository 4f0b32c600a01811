"""The position-wise feed-forward network, plain (2017) and gated (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.tap import Tap

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"]


class _SquaredReLU(torch.autograd.Function):
    """relu(x)²; its derivative is 2·relu(x), so one saved tensor is enough."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        positive = F.relu(x)
        ctx.save_for_backward(positive)
        return positive * positive

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return torch.addcmul(g.new_zeros(()), g, positive, value=2)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": _SquaredReLU.apply,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "quick_gelu": lambda x: x * (1.702 * x).sigmoid(),
    "silu": F.silu,
    "tanh": lambda x: x.tanh(),
}


@dataclass(frozen=True)
class FeedForwardConfig:
    width: int
    activation: Activation = "relu"
    gated: bool = False  # activation(gate(x)) · up(x): SwiGLU with "silu", GeGLU with "gelu"
    bias: bool = True
    dropout: float = 0.0  # between the two projections


class FeedForward(nn.Module):
    def __init__(self, width: int, config: FeedForwardConfig):
        super().__init__()
        self.gate = Linear(width, config.width, bias=config.bias) if config.gated else None
        self.up = Linear(width, config.width, bias=config.bias)
        self.down = Linear(config.width, width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.dropout = config.dropout
        self.hidden = Tap()

    def forward(self, x: Tensor) -> Tensor:  # (batch, length, width)
        if self.gate is None:
            hidden = self.activation(self.up(x))  # (batch, length, inner)
        else:
            hidden = self.activation(self.gate(x)) * self.up(x)
        if self.training and self.dropout:
            hidden = drop(hidden, self.dropout)
        return self.down(self.hidden(hidden))
