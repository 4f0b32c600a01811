"""Dropout (Srivastava et al. 2014). On a CPU drawing the mask costs more than using it, so one 64-bit
draw serves eight numbers: the probability is then a multiple of 1/256, and the rescaling is exact for it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

LEVELS = 256


def drop(x: Tensor, p: float) -> Tensor:
    """Zeroes each number with probability `p` and scales the others up, so that the expectation stays."""
    level = round(p * LEVELS)
    if x.device.type != "cpu" or not 0 < level < LEVELS:
        return F.dropout(x, p)
    draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), 2**63 - 1)
    keep = draws.view(torch.uint8)[: x.numel()].view(x.shape) >= level
    return x * keep.to(x.dtype).mul_(LEVELS / (LEVELS - level))
