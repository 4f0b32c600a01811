"""Boxes as tensors: centre and size ⇄ corners, and how much two boxes overlap."""

from __future__ import annotations

import torch
from torch import Tensor


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
