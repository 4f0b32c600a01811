"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from headway.layers.replaceable import replaceable


@replaceable
def drop(x: Tensor, p: float) -> Tensor:
    """Zeroes each number with probability `p` and scales the others up, so that the expectation stays."""
    return F.dropout(x, p)
