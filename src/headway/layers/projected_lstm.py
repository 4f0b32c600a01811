"""The LSTM of ELMo (Peters et al. 2018): its output is projected to fewer numbers before it goes back into the cell
(Sak et al. 2014), and cell and projection are clipped. Layers of it in two directions that do not see each other, and a
learned mix of all layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.replaceable import replaceable
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
    """One layer in one direction, run by `run_layers`. Gates are in torch's order: input, forget, new, output."""

    def __init__(self, config: ProjectedLSTMConfig):
        super().__init__()
        self.config = config
        self.input = Linear(config.width, 4 * config.hidden)
        self.recurrent = Linear(config.width, 4 * config.hidden, bias=False)
        self.project = Linear(config.hidden, config.width, bias=False)

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


def run_layers(
    layers: Sequence[ProjectedLSTM],  # of the same config, that do not see each other
    inputs: Sequence[Tensor],  # (batch, length, width) of each
    *,
    lengths: Tensor | None = None,  # (batch,): a row's last state is the one after so many steps
    states: Sequence[LSTMState] | None = None,
) -> list[tuple[Tensor, LSTMState]]:
    """(outputs (batch, length, width), last state) of each layer. All layers take a step at once."""
    config, (batch, length, _) = layers[0].config, inputs[0].shape
    if not length:
        raise ValueError("a sequence has no steps")
    gates = torch.stack([layer.input(x) for layer, x in zip(layers, inputs, strict=True)], dim=1)
    gates = gates.permute(2, 1, 0, 3)  # (length, layer, batch, 4 · hidden)
    if states is None:
        first = gates.new_zeros(len(layers), batch, config.width), gates.new_zeros(len(layers), batch, config.hidden)
    else:
        first = torch.stack([each.output for each in states]), torch.stack([each.cell for each in states])
    outputs, cells = all_steps(layers, gates, *first)
    rows = torch.arange(batch, device=gates.device)
    last = torch.full_like(rows, length - 1) if lengths is None else lengths - 1
    return [
        (outputs[:, number].transpose(0, 1), LSTMState(outputs[last, number, rows], cells[last, number, rows]))
        for number in range(len(layers))
    ]


@replaceable
def all_steps(layers: Sequence[ProjectedLSTM], gates: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    """(outputs, cells) of all layers: (length, layer, batch, 4 · hidden), (layer, batch, width) and (…, hidden) →
    (length, layer, batch, width) and (…, hidden)."""
    last = [LSTMState(*each) for each in zip(output, cell, strict=True)]
    found = []
    for now in gates:
        last = [layer.step(*each) for layer, *each in zip(layers, now, last, strict=True)]
        found.append([torch.stack(each) for each in zip(*last, strict=True)])
    outputs, cells = zip(*found, strict=True)
    return torch.stack(outputs), torch.stack(cells)


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
        streams, found, last = [x, x.gather(1, reverse)], [], []
        for index, layers in enumerate(zip(self.forwards, self.backwards, strict=True)):
            before = None if states is None else states[index :: self.config.layers]
            dropping = self.training and self.config.dropout
            inputs = [drop(stream, self.config.dropout) for stream in streams] if dropping else streams
            done = run_layers(cast(Sequence[ProjectedLSTM], layers), inputs, lengths=lengths, states=before)
            residual = index and self.config.residual
            streams = [out + stream if residual else out for (out, _), stream in zip(done, streams, strict=True)]
            found.append([streams[0], streams[1].gather(1, reverse)])
            last.append([state for _, state in done])
        both = [torch.cat([x, x], dim=-1), *(torch.cat(pair, dim=-1) for pair in found)]
        return [tap(layer) for tap, layer in zip(self.taps, both, strict=True)], [
            state for side in zip(*last, strict=True) for state in side
        ]


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
