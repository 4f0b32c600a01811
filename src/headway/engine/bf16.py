"""Linear layers and token tables with bfloat16 weights; activations stay float32."""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.engine.swap import swap_matrices
from headway.layers.linear import Linear, TokenTable


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

    @classmethod
    def of(cls, linear: Linear) -> Self:
        return cls(linear.weight, linear.bias)

    def forward(self, x: Tensor) -> Tensor:  # (…, in) → (…, out)
        return F.linear(x, self.weight.to(x.dtype), self.bias)


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
