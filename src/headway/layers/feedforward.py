"""The position-wise feed-forward network: plain (2017), gated (Shazeer 2020), and several of them of which a router
chooses a few for each token (Shazeer et al. 2017; Mixtral, Jiang et al. 2024)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.replaceable import replaceable
from headway.layers.tap import Tap

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh"]


@replaceable
def squared_relu(x: Tensor) -> Tensor:
    return F.relu(x).square()


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "relu2": squared_relu,
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
    experts: int = 0  # networks of this kind that a router chooses from; 0: one network, no router
    chosen: int = 2  # experts of each token

    def build(self, width: int) -> FeedForward | RoutedFeedForward:
        return RoutedFeedForward(width, self) if self.experts else FeedForward(width, self)

    def problem(self) -> str | None:
        if not self.experts or self.chosen <= self.experts:
            return None
        return f"chosen is {self.chosen}: there are {self.experts} experts"


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


class Router(Linear):
    """Kept in full precision where other matrices are quantised: a rounded score would choose another expert."""


class RoutedFeedForward(nn.Module):
    """The sum of the chosen experts' outputs, weighted by the softmax of their scores among the chosen. There is no
    load-balancing loss."""

    def __init__(self, width: int, config: FeedForwardConfig):
        super().__init__()
        self.chosen = config.chosen
        self.router = Router(width, config.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(width, config) for _ in range(config.experts))
        self.weights = Tap()

    def forward(self, x: Tensor) -> Tensor:  # (batch, length, width)
        tokens = x.flatten(0, -2)  # (token, width)
        scores, experts = self.router(tokens).float().softmax(-1).topk(self.chosen)  # (token, chosen), both
        weights = self.weights(scores / scores.sum(-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            token, place = (experts == number).nonzero(as_tuple=True)
            out = out.index_add(0, token, expert(tokens[token]) * weights[token, place, None])
        return out.view_as(x)
