"""Recurrent layers, and attention over their states.

Cells: the vanilla RNN (Elman 1990), the LSTM (Hochreiter & Schmidhuber 1997; Gers et al. 2000) and the GRU (Cho et al.
2014). Attention: additive (Bahdanau, Cho & Bengio 2015) and multiplicative (Luong, Pham & Manning 2015).

A state is one tensor: h, or for an LSTM h and c side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.linear import Linear
from headway.layers.tap import Tap

Cell = Literal["rnn", "gru", "lstm"]
GATES = {"rnn": 1, "gru": 3, "lstm": 4}  # blocks of `hidden` rows in each weight
STATES = {"rnn": 1, "gru": 1, "lstm": 2}  # vectors of a state


def cell_step(cell: Cell, inputs: Tensor, state: Tensor, *, weight: Tensor, bias: Tensor) -> Tensor:
    """The next state (batch, states · hidden). `inputs` is W_ih x + b_ih, (batch, gates · hidden); `weight` and `bias`
    are those of the recurrent product. The equations are torch's, gates in its order."""
    hidden = weight.shape[1]
    h = state[:, :hidden]
    recurrent = F.linear(h, weight, bias)  # (batch, gates · hidden)
    if cell == "rnn":
        return torch.tanh(inputs + recurrent)
    if cell == "gru":
        reset, update = (inputs + recurrent)[:, : 2 * hidden].sigmoid().chunk(2, dim=-1)
        new = torch.tanh(inputs[:, 2 * hidden :] + reset * recurrent[:, 2 * hidden :])
        return new + update * (h - new)
    into, forget, new, out = (inputs + recurrent).chunk(4, dim=-1)
    c = forget.sigmoid() * state[:, hidden:] + into.sigmoid() * new.tanh()
    return torch.cat([out.sigmoid() * c.tanh(), c], dim=-1)


class RecurrentCell(nn.Module):
    """One step of one layer. Its tensors have the names of torch's cells."""

    def __init__(self, cell: Cell, inputs: int, hidden: int):
        super().__init__()
        rows = GATES[cell] * hidden
        self.cell, self.hidden = cell, hidden
        self.weight_ih = nn.Parameter(torch.empty(rows, inputs))
        self.weight_hh = nn.Parameter(torch.empty(rows, hidden))
        self.bias_ih = nn.Parameter(torch.zeros(rows))
        self.bias_hh = nn.Parameter(torch.zeros(rows))
        reset_cells(self, cell, hidden)

    def project(self, x: Tensor) -> Tensor:
        """W_ih x + b_ih for the first features of the input, for all steps at once; `project_rest` adds the others."""
        return F.linear(x, self.weight_ih[:, : x.shape[-1]], self.bias_ih)

    def project_rest(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight_ih[:, -x.shape[-1] :])

    def forward(self, projected: Tensor, state: Tensor) -> Tensor:
        return cell_step(self.cell, projected, state, weight=self.weight_hh, bias=self.bias_hh)

    def run(self, x: Tensor, state: Tensor, *, lengths: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
        """All steps of (batch, length, width); as `run_layer`."""
        weights: list[Tensor] = [self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh]
        return run_layer(self.cell, x, weights, state, lengths=lengths, training=self.training)


def run_layer(
    cell: Cell, x: Tensor, weights: list[Tensor], state: Tensor, *, lengths: Sequence[int] | None, training: bool
) -> tuple[Tensor, Tensor]:
    """(outputs (batch, length, hidden), last state) by torch's fused kernel. A row's state stays as it is behind its
    length; where these differ, the steps are taken one by one."""
    if lengths is not None and min(lengths) < x.shape[1]:
        return _run_ragged(cell, x, weights, state, lengths)
    parts = [part[None].contiguous() for part in state.chunk(STATES[cell], dim=-1)]
    options = (True, 1, 0.0, training, False, True)  # biases, layers, dropout, training, both directions, batch first
    if cell == "lstm":
        out, h, c = torch.lstm(x, parts, weights, *options)
        return out, torch.cat([h[0], c[0]], dim=-1)
    out, h = (torch.gru if cell == "gru" else torch.rnn_tanh)(x, parts[0], weights, *options)
    return out, h[0]


def _run_ragged(
    cell: Cell, x: Tensor, weights: list[Tensor], state: Tensor, lengths: Sequence[int]
) -> tuple[Tensor, Tensor]:
    count, outputs = torch.tensor(lengths, device=x.device)[:, None], []
    for at, inputs in enumerate(F.linear(x, weights[0], weights[2]).unbind(1)):
        state = torch.where(at < count, cell_step(cell, inputs, state, weight=weights[1], bias=weights[3]), state)
        outputs.append(state[:, : weights[1].shape[1]])
    return torch.stack(outputs, dim=1), state


class Recurrent(nn.Module):
    """Layers of one cell over whole sequences, in one direction or both, by torch's fused kernels. Its tensors have the
    names of torch's nn.RNN, nn.GRU and nn.LSTM."""

    def __init__(
        self, cell: Cell, inputs: int, hidden: int, *, layers: int = 1, both: bool = False, dropout: float = 0.0
    ):
        super().__init__()
        self.cell, self.hidden, self.layers, self.both, self.dropout = cell, hidden, layers, both, dropout
        self.states = STATES[cell]
        rows, width = GATES[cell] * hidden, inputs
        for layer in range(layers):
            for direction in ("", "_reverse") if both else ("",):
                for kind, shape in {"ih": (rows, width), "hh": (rows, hidden)}.items():
                    setattr(self, f"weight_{kind}_l{layer}{direction}", nn.Parameter(torch.empty(shape)))
                    setattr(self, f"bias_{kind}_l{layer}{direction}", nn.Parameter(torch.zeros(rows)))
            width = hidden * (2 if both else 1)
        self.width = width  # of the outputs
        reset_cells(self, cell, hidden)

    def forward(
        self,
        x: Tensor,  # (batch, length, width)
        *,
        padding_mask: Tensor | None = None,  # (batch, length); padding is on the right. With both directions only
        state: Tensor | None = None,  # (batch, layers, states · hidden); with one direction only. None: zeros
        lengths: Sequence[int] | None = None,  # with one direction: the state of a row is that after so many steps
    ) -> tuple[Tensor, Tensor]:
        """(outputs (batch, length, directions · hidden), last state). With both directions the state is that of the
        backward direction, which has read the first token last."""
        reverse = None
        if self.both:
            real = x.new_ones(x.shape[:2]) if padding_mask is None else padding_mask
            count = real.long().sum(1, keepdim=True)  # (batch, 1)
            place = torch.arange(x.shape[1], device=x.device)[None]
            reverse = torch.where(place < count, count - 1 - place, place)[..., None]  # its own inverse
        states = []
        for layer in range(self.layers):
            if layer and self.training and self.dropout:
                x = drop(x, self.dropout)
            first = x.new_zeros(len(x), self.states * self.hidden) if state is None else state[:, layer]
            if reverse is None:
                x, last = self._run(x, f"_l{layer}", first, lengths)
            else:
                forwards, _ = self._run(x, f"_l{layer}", first, None)
                backwards, _ = self._run(x.gather(1, reverse.expand_as(x)), f"_l{layer}_reverse", first, None)
                last = backwards.gather(1, (count - 1)[..., None].expand(-1, 1, self.hidden))[:, 0]
                x = torch.cat([forwards, backwards.gather(1, reverse.expand_as(backwards))], dim=-1)
                if padding_mask is not None:
                    x = x * padding_mask[..., None].to(x.dtype)
            states.append(last)
        return x, torch.stack(states, dim=1)

    def _run(self, x: Tensor, name: str, state: Tensor, lengths: Sequence[int] | None) -> tuple[Tensor, Tensor]:
        weights = [getattr(self, part + name) for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        return run_layer(self.cell, x, weights, state, lengths=lengths, training=self.training)


@torch.no_grad()
def reset_cells(module: nn.Module, cell: Cell, hidden: int, *, generator: torch.Generator | None = None) -> None:
    """First values: uniform within ±1/√hidden, as torch has them; the forget gate of an LSTM begins open (bias 1,
    Jozefowicz et al. 2015)."""
    bound = 1 / math.sqrt(hidden)
    for name, parameter in module.named_parameters(recurse=False):
        if name.startswith("weight"):
            parameter.uniform_(-bound, bound, generator=generator)
        else:
            parameter.zero_()
            if cell == "lstm" and name.startswith("bias_ih"):
                parameter[hidden : 2 * hidden] = 1.0


class AdditiveAttention(nn.Module):
    """α = softmax(vᵀ tanh(W s + U h)), context = Σ α h: how well each source state fits the decoder's last one."""

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
        weights = masked_softmax(scores, padding_mask)
        return (weights[:, None] @ memory)[:, 0], weights


class MultiplicativeAttention(nn.Module):
    """α = softmax(sᵀ W h), context = Σ α h, where s is the decoder's new state (Luong's "general" score)."""

    def __init__(self, state: int, memory: int):
        super().__init__()
        self.key = Linear(memory, state, bias=False)
        self.weights = Tap()

    def forward(
        self, states: Tensor, *, memory: Tensor, keys: Tensor, padding_mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """states (batch, target, state); keys = self.key(memory) → context (batch, target, memory), weights
        (batch, target, source)."""
        weights = masked_softmax(states @ keys.mT, None if padding_mask is None else padding_mask[:, None])
        return weights @ memory, weights


def masked_softmax(scores: Tensor, padding_mask: Tensor | None) -> Tensor:
    if padding_mask is not None:
        scores = scores.masked_fill(~padding_mask, -math.inf)
    return scores.softmax(-1)
