"""Dropout on a CPU, where drawing the mask costs more than using it: one 64-bit draw serves eight numbers. The
probability is then a multiple of 1/256, and the rescaling is exact for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

LEVELS = 256


def draws_bytes(x: Tensor, p: float) -> bool:
    """Whether a byte for each number decides; if not, torch's own dropout does."""
    return x.device.type == "cpu" and 0 < round(p * LEVELS) < LEVELS


def draw_kept(shape: torch.Size, p: float) -> Tensor:
    """1 where a number is kept and 0 where it is dropped, as bytes."""
    count = shape.numel()
    draws = torch.empty((count + 7) // 8, dtype=torch.int64).random_(-(2**63), 2**63 - 1)
    return draws.view(torch.uint8)[:count].view(shape).ge_(round(p * LEVELS))


def scaled(kept: Tensor, p: float, dtype: torch.dtype) -> Tensor:
    """What numbers are multiplied by."""
    return kept.to(dtype).mul_(LEVELS / (LEVELS - round(p * LEVELS)))


class Drop(torch.autograd.Function):
    """Keeps a byte for each number."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float) -> Tensor:
        kept, ctx.p = draw_kept(x.shape, p), p
        ctx.save_for_backward(kept)
        return x * scaled(kept, p, x.dtype)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return g * scaled(kept, ctx.p, g.dtype), None
