"""softmax(QKᵀ · scale + bias)V with the gradient of the bias, on a CPU. torch has no fused kernel for it, and its own
composition keeps four tensors of (query, key) for the backward pass. This one computes in place and keeps the weights
and a byte of dropout for each."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from headway.engine.training.dropout import draw_kept, draws_bytes, scaled
from headway.layers.attend import repeat_groups, score_scale


def trains_bias(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, allowed: Tensor | None, scale: float | None, dropout: float
) -> bool:
    if not bias.requires_grad or not torch.is_grad_enabled() or q.device.type != "cpu":
        return False
    return not torch.is_autocast_enabled("cpu") and (not dropout or draws_bytes(q, dropout))


def attend_with_bias(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor, allowed: Tensor | None, scale: float | None, dropout: float
) -> Tensor:
    k, v = repeat_groups(k, q.shape[1]), repeat_groups(v, q.shape[1])
    bias = bias.to(q.dtype).expand(*q.shape[:-1], k.shape[-2])
    return _Attend.apply(q, k, v, bias, allowed, score_scale(q.shape[-1], scale), dropout)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, allowed: Tensor | None, scale: float, dropout: float
    ) -> Tensor:
        scores = torch.baddbmm(bias.flatten(0, 1), q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2), alpha=scale)
        scores = scores.view(bias.shape)
        if allowed is not None:
            scores += torch.zeros_like(allowed, dtype=q.dtype).masked_fill_(~allowed, -math.inf)
        weights = torch.softmax(scores, -1, out=scores)
        if allowed is not None and not (some := allowed.any(-1, keepdim=True)).all():
            weights.masked_fill_(~some, 0.0)  # a query that may attend to nothing
        kept = draw_kept(weights.shape, dropout) if dropout else None
        ctx.save_for_backward(q, k, v, weights, kept)
        ctx.scale, ctx.dropout = scale, dropout
        return (weights if kept is None else scaled(kept, dropout, q.dtype).mul_(weights)) @ v

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, weights, kept = ctx.saved_tensors
        dropped, d_weights = weights, g @ v.transpose(-2, -1)
        if kept is not None:
            factor = scaled(kept, ctx.dropout, g.dtype)
            d_weights *= factor
            dropped = factor.mul_(weights)
        dv = dropped.transpose(-2, -1) @ g
        d_scores = torch._softmax_backward_data(d_weights, weights, -1, weights.dtype)
        dq = (d_scores @ k).mul_(ctx.scale)
        dk = (d_scores.transpose(-2, -1) @ q).mul_(ctx.scale)
        return dq, dk, dv, d_scores, None, None, None
