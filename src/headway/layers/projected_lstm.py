"""The LSTM of ELMo (Peters et al. 2018): its output is projected to fewer numbers before it goes back into the cell
(Sak et al. 2014), and cell and projection are clipped. Layers of it in two directions that do not see each other, and a
learned mix of all layers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.tap import Tap


@dataclass(frozen=True)
class ProjectedLSTMConfig:
    hidden: int  # of the cell
    width: int  # of its projection, and of its input
    layers: int = 2
    cell_clip: float = 0.0  # largest value of a cell; 0: not clipped
    projection_clip: float = 0.0
    residual: bool = True  # a layer after the first adds its input to its output
    dropout: float = 0.0


class LSTMState(NamedTuple):
    output: Tensor  # (batch, width)
    cell: Tensor  # (batch, hidden)


class ProjectedLSTM(nn.Module):
    """One layer in one direction. Gates are in torch's order: input, forget, new, output."""

    def __init__(self, config: ProjectedLSTMConfig):
        super().__init__()
        self.config = config
        self.input = Linear(config.width, 4 * config.hidden)
        self.recurrent = Linear(config.width, 4 * config.hidden, bias=False)
        self.project = Linear(config.hidden, config.width, bias=False)

    def forward(
        self,
        x: Tensor,  # (batch, length, width)
        *,
        lengths: Tensor | None = None,  # (batch,): behind its length a row's state stays as it is
        state: LSTMState | None = None,
    ) -> tuple[Tensor, LSTMState]:  # outputs (batch, length, width), the last state
        hidden, width = self.config.hidden, self.config.width
        last = state or LSTMState(x.new_zeros(len(x), width), x.new_zeros(len(x), hidden))
        outputs = []
        for at, inputs in enumerate(self.input(x).unbind(1)):
            new = self.step(inputs, last)
            if lengths is not None:
                real = (at < lengths)[:, None]
                new = LSTMState(*(torch.where(real, now, before) for now, before in zip(new, last, strict=True)))
            last = new
            outputs.append(last.output)
        return torch.stack(outputs, dim=1), last

    def step(self, inputs: Tensor, last: LSTMState) -> LSTMState:
        into, forget, new, out = (inputs + self.recurrent(last.output)).chunk(4, dim=-1)
        cell = forget.sigmoid() * last.cell + into.sigmoid() * new.tanh()
        cell = _clip(cell, self.config.cell_clip)
        return LSTMState(_clip(self.project(out.sigmoid() * cell.tanh()), self.config.projection_clip), cell)

    @torch.no_grad()
    def reset(self, generator: torch.Generator) -> None:
        """First values: uniform within ±1/√hidden; the forget gate begins open."""
        bound = 1 / math.sqrt(self.config.hidden)
        for layer in (self.input, self.recurrent, self.project):
            layer.weight.uniform_(-bound, bound, generator=generator)
        self.input.bias.zero_()
        self.input.bias[self.config.hidden : 2 * self.config.hidden] = 1.0


class BidirectionalStack(nn.Module):
    """Layers from left to right and layers from right to left."""

    def __init__(self, config: ProjectedLSTMConfig):
        super().__init__()
        self.config = config
        self.forwards = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.layers))
        self.backwards = nn.ModuleList(ProjectedLSTM(config) for _ in range(config.layers))
        self.mix = ScalarMix(config.layers + 1)
        self.taps = nn.ModuleList(Tap() for _ in range(config.layers + 1))  # each (batch, length, 2 · width)

    def forward(
        self,
        x: Tensor,  # (batch, length, width)
        *,
        padding_mask: Tensor | None = None,  # (batch, length), True = real; padding is on the right
        states: list[LSTMState] | None = None,  # of the forward layers, then of the backward layers
    ) -> tuple[list[Tensor], list[LSTMState]]:
        """(the input and every layer's output, each (batch, length, 2 · width), forward half first; last states)."""
        lengths = None if padding_mask is None else padding_mask.long().sum(1)
        place = torch.arange(x.shape[1], device=x.device)[None]
        count = x.shape[1] if lengths is None else lengths[:, None]
        reverse = torch.where(place < count, count - 1 - place, place).expand(len(x), -1)[..., None].expand_as(x)
        found, last = [], []
        for number, stack in enumerate((self.forwards, self.backwards)):
            stream = x if number == 0 else x.gather(1, reverse)
            outputs = []
            for index, layer in enumerate(stack):
                before = None if states is None else states[number * self.config.layers + index]
                inputs = drop(stream, self.config.dropout) if self.training and self.config.dropout else stream
                out, state = layer(inputs, lengths=lengths, state=before)
                stream = out + stream if index and self.config.residual else out
                outputs.append(stream if number == 0 else stream.gather(1, reverse))
                last.append(state)
            found.append(outputs)
        both = [torch.cat([x, x], dim=-1), *(torch.cat(pair, dim=-1) for pair in zip(*found, strict=True))]
        return [tap(layer) for tap, layer in zip(self.taps, both, strict=True)], last


class ScalarMix(nn.Module):
    """γ · Σ softmax(s)ᵢ · layerᵢ, with learned s and γ."""

    def __init__(self, count: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(count))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, layers: list[Tensor]) -> Tensor:
        shares = F.softmax(self.weights, dim=0)
        return self.scale * sum(share * layer for share, layer in zip(shares, layers, strict=True))


def _clip(x: Tensor, most: float) -> Tensor:
    return x.clamp(-most, most) if most else x
