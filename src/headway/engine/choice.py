"""Room: engine. Which of two ways is faster here, by trying both and not by belief."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.engine.product import product

TRIES = 5
CLEARLY = 1.2  # a product is not all of a step, and a busy machine measures badly
FEW = 16  # so few tokens wait for the memory, whoever multiplies


def most_tokens(weight: Tensor, *, limit: int) -> int:
    """How many tokens a step may have before torch multiplies them faster with a float32 matrix than we do."""
    rows = limit
    while rows > FEW:
        x = torch.randn(rows, weight.shape[1])
        if _seconds(partial(product, x, weight)) <= CLEARLY * _seconds(partial(F.linear, x, weight)):
            break
        rows //= 2
    return rows


def _seconds(job: Callable[[], object]) -> float:
    """The best of a few."""
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)
