"""Functions of one tensor with their gradients written out: fewer passes over memory than what autograd composes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class UnitRMS(torch.autograd.Function):
    """n = x / √(mean(x²) + eps); dx = (g − n · mean(g · n)) / √(…)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(torch.linalg.vecdot(x, x)[..., None] / x.shape[-1] + eps)
        n = x * scale
        ctx.save_for_backward(n, scale)
        return n

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        n, scale = ctx.saved_tensors
        shared = torch.linalg.vecdot(g, n)[..., None] / n.shape[-1]
        return torch.addcmul(g, n, shared, value=-1) * scale, None


class SquaredReLU(torch.autograd.Function):
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


class Rotate(torch.autograd.Function):
    """The gradient is rotated by the negative angle."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, sign: float = 1.0) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.sign = sign
        half = cos.shape[-1]
        a, b = x[..., :half], x[..., half : 2 * half]
        out = torch.empty_like(x)
        torch.mul(a, cos, out=out[..., :half]).addcmul_(b, sin, value=-sign)
        torch.mul(b, cos, out=out[..., half : 2 * half]).addcmul_(a, sin, value=sign)
        out[..., 2 * half :] = x[..., 2 * half :]
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None, None]:
        return Rotate.apply(g, *ctx.saved_tensors, -ctx.sign), None, None, None
