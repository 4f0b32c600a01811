"""torch's Linear and Embedding, which draw no initial values on the meta device: a model whose weights are about to be
loaded is built in no time.

`table` is what `linear` multiplies with: the weight, or what stands for it where it is stored in another format.

Within `bf16_matmul()` the products of linear layers, forward and backward, may have factors rounded to bf16, while
weights, activations and sums stay float32: oneDNN computes them in place of MKL. With AMX it rounds and is about three
times as fast; on CPUs of AMD its float32 kernels are twice as fast as MKL's, and nothing is rounded. It is not torch's
global setting (`set_float32_matmul_precision`), with which the many small products of fused attention are ten times
slower.

oneDNN prepares a kernel for each number of rows and keeps it: batches of ever new lengths would cost a tenth of the
time and a gigabyte. So it computes a multiple of BLOCK rows, and MKL, which prepares nothing, the few that remain.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

BLOCK = 128

_may_round = False  # whether `linear` may round factors


@contextmanager
def bf16_matmul() -> Iterator[None]:
    """Factors of what `linear` computes in this context, and of its gradients, may be rounded. On CPUs only."""
    global _may_round
    before, _may_round = _may_round, True
    try:
        yield
    finally:
        _may_round = before


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if _may_round and x.device.type == "cpu" and x.dtype == weight.dtype == torch.float32:
        return _Bf16Linear.apply(x, weight, bias)
    return F.linear(x, weight, bias)


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


class _Deferred(nn.Module):
    weight: Tensor

    @property
    def table(self) -> Tensor:
        return self.weight

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()  # type: ignore[misc]


class Linear(_Deferred, nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class TokenTable(_Deferred, nn.Embedding):
    pass
