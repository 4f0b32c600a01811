"""The loss of R-drop (Liang et al. 2021): the cross-entropy of two passes with different dropout, and how much they
differ."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.tasks.task import IGNORE

BLOCK = 1 << 18  # numbers of each pass at a time: they and what is made of them fit into a CPU's cache


def r_drop_loss(logits: Tensor, wanted: Tensor, *, weight: float, smoothing: float) -> Tensor:
    """(CE(a) + CE(b) + weight / 2 · (KL(p‖q) + KL(q‖p))) / 2, summed over the rows with a wanted class. The first half
    of the logits (row, class) is a, from one pass, the second b, of the same rows; p and q are their distributions.

    The gradient is computed together with the loss, block by block of rows: as a chain of operations on all logits it
    would need a dozen tensors of their size, and the time to write and read them."""
    loss: Tensor = _RDrop.apply(logits, wanted, weight, smoothing)
    return loss


class _RDrop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, wanted: Tensor, weight: float, smoothing: float) -> Tensor:
        gradient = torch.empty_like(logits)
        total = logits.new_zeros((), dtype=torch.float32)
        rows, classes = len(wanted), logits.shape[1]
        size = max(1, BLOCK // classes if logits.device.type == "cpu" else rows)
        for start in range(0, rows, size):
            block = slice(start, min(start + size, rows))
            passes = [each[block] for each in logits.chunk(2)]
            total += _block(passes, wanted[block], weight, smoothing, [each[block] for each in gradient.chunk(2)])
        ctx.save_for_backward(gradient)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = ctx.saved_tensors
        return gradient.mul_(scale), None, None, None


def _block(passes: list[Tensor], wanted: Tensor, weight: float, smoothing: float, gradients: list[Tensor]) -> Tensor:
    """The loss of these rows; `gradients` become those of the logits of the passes."""
    counted = (wanted != IGNORE)[:, None]
    right = wanted.clamp(min=0)[:, None]
    logs = [logits.float().log_softmax(-1) for logits in passes]
    shares = [log.exp() for log in logs]
    apart, moved = logs[0] - logs[1], shares[0] - shares[1]  # log p − log q, p − q
    loss = weight / 2 * (moved * apart).sum(-1, keepdim=True)
    for log, share, sign, gradient in zip(logs, shares, (1, -1), gradients, strict=True):
        loss = loss - (1 - smoothing) * log.gather(1, right) - smoothing * log.mean(-1, keepdim=True)
        mean = (share * apart).sum(-1, keepdim=True)  # KL(p‖q), or −KL(q‖p)
        change = torch.addcmul(moved, share, apart - mean).mul_(sign * weight / 2)  # of the divergences
        change += share
        change -= smoothing / log.shape[1]
        change.scatter_add_(1, right, change.new_full(right.shape, smoothing - 1))
        torch.mul(change, counted / 2, out=gradient)
    return (loss * counted).sum() / 2
