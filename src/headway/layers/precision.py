"""The precision of a pass: float32, or 16-bit factors where the device has instructions for them."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from headway.layers.linear import bf16_matmul, linear

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
TIMED = (1024, 256, 1024)  # rows, inputs and outputs of a timed product
TRIALS = 10  # of which the shortest counts


def autocast(precision: str, device: torch.device) -> AbstractContextManager[Any]:
    """The context of a pass. bf16 on a CPU concerns the products of linear layers alone (`bf16_matmul`): all else is
    slower there in 16 bits."""
    if precision == "fp32":
        return nullcontext()
    if precision == "bf16" and device.type == "cpu":
        return bf16_matmul()
    return torch.autocast(device.type, dtype=DTYPES[precision])


def bf16_speedup() -> float:
    """How many times faster this CPU computes linear layers if it may round their factors to bf16, timed now."""
    rows, inputs, outputs = TIMED
    x, weight = torch.ones(rows, inputs), torch.ones(outputs, inputs)

    def seconds() -> float:
        began = time.perf_counter()
        _ = linear(x, weight)
        return time.perf_counter() - began

    full = min(seconds() for _ in range(TRIALS))
    with bf16_matmul():
        return full / min(seconds() for _ in range(TRIALS))
