"""The precision of a pass: float32, or 16-bit factors where the device has instructions for them.

Within `bf16_matmul()` the products of linear layers, forward and backward, may have factors rounded to bf16, while
weights, activations and sums stay float32: oneDNN computes them in place of MKL. With AMX it rounds and is about three
times as fast; on CPUs of AMD its float32 kernels are twice as fast as MKL's, and nothing is rounded. It is not torch's
global setting (`set_float32_matmul_precision`), with which the many small products of fused attention are ten times
slower.

oneDNN prepares a kernel for each number of rows and keeps it: batches of ever new lengths would cost a tenth of the
time and a gigabyte. So it computes a multiple of BLOCK rows, and MKL, which prepares nothing, the few that remain.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from headway.layers.linear import linear

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
BLOCK = 128  # rows
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


def bf16_matmul() -> AbstractContextManager[None]:
    """Factors of what `linear` computes in this context, and of its gradients, may be rounded. On CPUs only."""
    return linear.replaced(_bf16_linear, where=_may_round)


def _bf16_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return _Bf16Linear.apply(x, weight, bias)


def _may_round(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> bool:
    return x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32


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


class _Bf16Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None
        product = _product(_rows(x), weight.T)
        return (product if bias is None else product.add_(bias)).unflatten(0, x.shape[:-1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_x, of_weight, of_bias = ctx.needs_input_grad
        rows = _rows(gradient)
        return (
            _product(rows, weight).view_as(x) if of_x else None,
            _product_of_columns(rows, _rows(x)) if of_weight else None,
            rows.sum(0) if of_bias and ctx.biased else None,
        )


def _product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix"""
    whole = len(rows) // BLOCK * BLOCK
    product = rows.new_empty(len(rows), matrix.shape[1])
    with _bf16_allowed():
        torch.mm(rows[:whole], matrix, out=product[:whole])
    torch.mm(rows[whole:], matrix, out=product[whole:])
    return product


def _product_of_columns(a: Tensor, b: Tensor) -> Tensor:
    """a.T @ b"""
    whole = len(a) // BLOCK * BLOCK
    with _bf16_allowed():
        product = a[:whole].T @ b[:whole]
    return product.addmm_(a[whole:].T, b[whole:])


def _rows(x: Tensor) -> Tensor:
    """(…, width) → (row, width)"""
    return x.reshape(-1, x.shape[-1])


@contextmanager
def _bf16_allowed() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
