"""All steps of ELMo's LSTM with their gradient written out: a quarter of the operations, and the gradient of a weight
is one product instead of one a step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.layers.linear import Linear
from headway.layers.projected_lstm import ProjectedLSTM


def are_plain(layers: Sequence[ProjectedLSTM], gates: Tensor, output: Tensor, cell: Tensor) -> bool:
    """Whether the weights are used as they are: not quantised, not with an adapter."""
    return all(type(each) is Linear for layer in layers for each in (layer.recurrent, layer.project))


def all_steps(layers: Sequence[ProjectedLSTM], gates: Tensor, output: Tensor, cell: Tensor) -> tuple[Tensor, ...]:
    weights = [torch.stack([getattr(layer, name).weight for layer in layers]) for name in ("recurrent", "project")]
    config, same = layers[0].config, [each.to(gates.dtype) for each in (*weights, output, cell)]
    return _AllSteps.apply(gates, *same, config.cell_clip, config.projection_clip)


class _AllSteps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,  # (length, layer, batch, 4 · hidden)
        recurrent: Tensor,  # (layer, 4 · hidden, width)
        project: Tensor,  # (layer, width, hidden)
        output: Tensor,  # (layer, batch, width)
        cell: Tensor,  # (layer, batch, hidden)
        cell_clip: float,
        projection_clip: float,
    ) -> tuple[Tensor, Tensor]:  # (length, layer, batch, width), (length, layer, batch, hidden)
        length, hidden = len(inputs), cell.shape[-1]
        gates = torch.empty(inputs.shape, dtype=inputs.dtype, device=inputs.device)
        outputs, cells = (each.new_empty(length + 1, *each.shape) for each in (output, cell))
        outputs[0], cells[0] = output, cell
        tanhs = torch.empty_like(cells[1:])
        with torch.autocast(inputs.device.type, enabled=False):
            for at, (gate, now, tanh) in enumerate(zip(gates, cells[1:], tanhs, strict=True)):
                torch.baddbmm(inputs[at], outputs[at], recurrent.mT, out=gate)
                into, forget, new, out = gate.split(hidden, dim=-1)
                gate[..., : 2 * hidden].sigmoid_()
                new.tanh_()
                out.sigmoid_()
                torch.mul(forget, cells[at], out=now).addcmul_(into, new)
                _clip_(now, cell_clip)
                torch.tanh(now, out=tanh)
                torch.bmm(out * tanh, project.mT, out=outputs[at + 1])
                _clip_(outputs[at + 1], projection_clip)
        ctx.save_for_backward(gates, outputs, cells, tanhs, recurrent, project)
        ctx.clips = cell_clip, projection_clip
        return outputs[1:], cells[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_outputs: Tensor, d_cells: Tensor) -> tuple[Tensor | None, ...]:
        gates, outputs, cells, tanhs, recurrent, project = ctx.saved_tensors
        cell_clip, projection_clip = ctx.clips
        gates = gates.unflatten(-1, (4, -1))
        into, forget, new, out = gates.unbind(-2)
        slopes = gates * (1 - gates)  # (length, layer, batch, 4, hidden): of a gate's result by what goes into it …
        slopes[..., 2, :] = 1 - new * new
        slopes[..., 0, :] *= new  # … and of the cell, and of the hidden, by that
        slopes[..., 1, :] *= cells[:-1]
        slopes[..., 2, :] *= into
        slopes[..., 3, :] *= tanhs
        through = out * (1 - tanhs * tanhs)  # of the hidden by the cell
        d_projected = torch.empty_like(outputs[1:])
        d_gates = torch.empty_like(slopes)
        d_output, d_cell = torch.zeros_like(outputs[0]), torch.zeros_like(cells[0])
        for at in reversed(range(len(gates))):
            d_now = torch.add(d_outputs[at], d_output, out=d_projected[at])
            if projection_clip:
                d_now *= outputs[at + 1].abs() < projection_clip
            d_hidden = torch.bmm(d_now, project)
            d_cell = (d_cell + d_cells[at]).addcmul_(d_hidden, through[at])
            if cell_clip:
                d_cell *= cells[at + 1].abs() < cell_clip
            torch.mul(slopes[at, ..., :3, :], d_cell[..., None, :], out=d_gates[at, ..., :3, :])
            torch.mul(slopes[at, ..., 3, :], d_hidden, out=d_gates[at, ..., 3, :])
            d_cell = d_cell * forget[at]
            d_output = torch.bmm(d_gates[at].flatten(-2), recurrent)
        d_gates = d_gates.flatten(-2)
        d_recurrent = _product(d_gates, outputs[:-1])
        d_project = _product(d_projected, out * tanhs)
        return d_gates, d_recurrent, d_project, d_output, d_cell, None, None


def _product(left: Tensor, right: Tensor) -> Tensor:
    """Σ over steps and rows: (step, layer, row, n), (step, layer, row, m) → (layer, n, m)."""
    return left.transpose(0, 1).flatten(1, 2).mT @ right.transpose(0, 1).flatten(1, 2)


def _clip_(x: Tensor, most: float) -> None:
    if most:
        x.clamp_(-most, most)
