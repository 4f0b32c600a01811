"""Boxes as tensors: centre and size ⇄ corners, how much two boxes overlap, and where a query that is a box attends."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.embedded import Grid

LEAST = 0.02  # share of the picture: a smaller side counts as this


def to_corners(boxes: Tensor) -> Tensor:
    """(…, 4): centre x, centre y, width, height → left, top, right, bottom."""
    centre, half = boxes[..., :2], boxes[..., 2:] / 2
    return torch.cat([centre - half, centre + half], dim=-1)


def overlaps(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Intersection over union, and generalised IoU (Rezatofighi et al. 2019), of corners that broadcast to (…, 4)."""
    low, high = torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    union = (a[..., 2:] - a[..., :2]).prod(-1) + (b[..., 2:] - b[..., :2]).prod(-1) - shared
    iou = shared / union.clamp(min=1e-9)
    around = (torch.maximum(a[..., 2:], b[..., 2:]) - torch.minimum(a[..., :2], b[..., :2])).prod(-1)
    return iou, iou - (around - union) / around.clamp(min=1e-9)


class BoxPrior(nn.Module):
    """A Gaussian prior on where a query that is a box attends (SMCA, Gao et al. 2021): each head prefers what is around
    a point of the box, by a bias that is added to the scores of cross-attention.

    bias = −s/2 · (distance from the head's point / half the box's side)², summed over x and y; the point of each
    head and s > 0 are learned."""

    def __init__(self, heads: int):
        super().__init__()
        turn = torch.arange(heads) * (2 * math.pi / heads)
        self.point = nn.Parameter(torch.stack([turn.cos(), turn.sin()], dim=-1) / 4)  # (head, 2), in half sides
        self.sharpness = nn.Parameter(torch.full((heads,), math.log(math.e - 1)))  # s = softplus of it: 1

    def forward(self, boxes: Tensor, grid: Grid) -> Tensor:
        """(batch, query, 4) as centre and size → (batch, head, query, row · column)."""
        centre, half = boxes[:, None, :, :2], boxes[:, None, :, 2:].clamp(min=LEAST) / 2  # (batch, 1, query, 2)
        point = centre + self.point[:, None] * half  # (batch, head, query, 2)
        root = (F.softplus(self.sharpness) / 2).sqrt()[:, None, None] / half
        x = ((grid.columns[:, None, None] - point[..., :1]) * root[..., :1]).square()  # (batch, head, query, column)
        y = ((grid.rows[:, None, None] - point[..., 1:]) * root[..., 1:]).square()
        return -(y[..., :, None] + x[..., None, :]).flatten(3)
