"""Linear layers and token tables with bfloat16 weights; activations stay float32.

A product of many rows is computed in one of two ways: the weights are widened to float32, or, if the model was
published in bfloat16, the rows are rounded to bfloat16, as that model does everywhere; processors with such products
take a fraction of the time. Which is faster, and from how many rows on, is measured when the model is loaded.
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.engine.swap import swap_matrices
from headway.layers.linear import Linear, TokenTable

ROWS = (16, 64, 256)  # of the products that are measured
MOST_OUTPUTS = 1024  # of the matrix in them


class _Bf16Module(nn.Module):
    weight: Tensor

    def __init__(self, weight: Tensor):
        super().__init__()
        self.register_buffer("weight", weight.detach().to(torch.bfloat16).contiguous())

    @property
    def table(self) -> Any:
        return self.weight.float()


class Bf16Linear(_Bf16Module):
    def __init__(self, weight: Tensor, bias: nn.Parameter | None):
        super().__init__(weight)
        self.out_features, self.in_features = weight.shape
        self.bias = bias
        self.rounds_from: int | None = None  # products of so many rows or more round the rows

    @classmethod
    def of(cls, linear: Linear) -> Self:
        return cls(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:  # (…, in) → (…, out)
        if self.rounds_from is None or x.numel() < self.rounds_from * self.in_features:
            return widened_product(x, self.weight, self.bias)
        return rounded_product(x, self.weight, self.bias)


class Bf16Table(_Bf16Module):
    @classmethod
    def of(cls, table: TokenTable) -> Self:
        return cls(table.weight)

    def forward(self, ids: Tensor) -> Tensor:  # (…) → (…, width)
        return self.weight[ids].float()


def convert_to_bf16(model: nn.Module) -> nn.Module:
    """Converts a model's matrices to bfloat16 and everything else to float32, in place."""
    with torch.no_grad():
        swap_matrices(model, linear=Bf16Linear.of, table=Bf16Table.of)
        for parameter in model.parameters():
            parameter.data = parameter.data.float()
    return model


def widened_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return F.linear(x, weight.to(x.dtype), bias)


def rounded_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    y = F.linear(x.to(weight.dtype), weight).to(x.dtype)
    return y if bias is None else y + bias


def choose_products(model: nn.Module) -> None:
    """Measures both ways on the model's largest matrix, and sets the faster one."""
    layers = [module for module in model.modules() if isinstance(module, Bf16Linear)]
    if layers:
        largest = max(layers, key=lambda layer: layer.weight.numel()).weight
        faster_from = _rounding_is_faster_from(largest[:MOST_OUTPUTS])
        for layer in layers:
            layer.rounds_from = faster_from


@torch.no_grad()
def _rounding_is_faster_from(weight: Tensor) -> int | None:
    """The number of rows from which on rounding them is always faster; None if it is not for the most rows."""
    from headway.engine.measure import best

    faster_from = None
    for rows in reversed(ROWS):
        x = torch.ones(rows, weight.shape[1], device=weight.device)
        widened = best(lambda x=x: widened_product(x, weight, None))  # type: ignore[misc]
        rounded = best(lambda x=x: rounded_product(x, weight, None))  # type: ignore[misc]
        if rounded >= widened:
            break
        faster_from = rows
    return faster_from
