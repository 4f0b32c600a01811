"""Norms. LayerNorm and RMSNorm are torch's; the seed's BatchNorm, with padding excluded, and the modulation of a norm
by a condition are ours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.layers.replaceable import replaceable


@dataclass(frozen=True)
class NormConfig:
    kind: Literal["layer", "rms", "batch"] = "layer"
    eps: float = 1e-5
    affine: bool = True  # a learned scale (and, for layer norm, a learned shift)
    bias: bool = True  # the shift; RMS norm has none
    unit_offset: bool = False  # RMS norm: the scale is 1 + weight (Gemma)

    def build(self, width: int) -> nn.Module:
        if self.kind == "layer":
            return nn.LayerNorm(width, eps=self.eps, elementwise_affine=self.affine, bias=self.bias)
        if self.kind == "rms":
            return RMSNorm(width, eps=self.eps, elementwise_affine=self.affine, unit_offset=self.unit_offset)
        return BatchNorm(width, eps=self.eps)


class RMSNorm(nn.RMSNorm):
    """x / √(mean(x²) + eps) · scale (Zhang and Sennrich 2019). 16-bit numbers are squared and summed in float32."""

    eps: float

    def __init__(self, width: int, *, eps: float = 1e-5, elementwise_affine: bool = True, unit_offset: bool = False):
        self.unit_offset = unit_offset
        super().__init__(width, eps=eps, elementwise_affine=elementwise_affine)

    @property
    def scale(self) -> Tensor | None:
        return self.weight if self.weight is None or not self.unit_offset else 1 + self.weight

    def reset_parameters(self) -> None:
        if self.elementwise_affine:
            nn.init.constant_(self.weight, 0.0 if self.unit_offset else 1.0)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
        y = unit_rms(wide, self.eps).to(x.dtype)
        return y if self.scale is None else y * self.scale


@replaceable
def unit_rms(x: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)


class BatchNorm(nn.Module):
    """Each feature is normalised over every real token of the batch (Ioffe & Szegedy 2015; seed 002, whose listing
    averages over the features too). Padding is excluded; evaluation uses running statistics."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, width: int, *, eps: float = 1e-5, momentum: float = 0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("running_mean", torch.zeros(width))
        self.register_buffer("running_var", torch.ones(width))

    def forward(self, x: Tensor, *, padding_mask: Tensor | None = None) -> Tensor:
        """`x` is (batch, length, width); `padding_mask` is (batch, length), nonzero = a real token."""
        if self.training:
            real = torch.ones_like(x[..., :1]) if padding_mask is None else padding_mask[..., None].to(x.dtype)
            count = real.sum()
            mean = (x * real).flatten(0, -2).sum(0) / count  # (width)
            var = ((x - mean).square() * real).flatten(0, -2).sum(0) / count
            with torch.no_grad():
                self.running_mean.lerp_(mean, self.momentum)
                self.running_var.lerp_(var * (count / (count - 1).clamp(min=1)), self.momentum)
        else:
            mean, var = self.running_mean, self.running_var
        return (x - mean) * torch.rsqrt(var + self.eps) * self.weight + self.bias


class Modulation(nn.Module):
    """Conditioning by a vector (AdaLN-Zero, Peebles & Xie 2023): for each of `branches` residual branches a shift and a
    scale of its normalised input, and a gate of its result. Starts at zero: the block is then the identity."""

    def __init__(self, width: int, condition: int, *, branches: int):
        super().__init__()
        self.branches = branches
        self.project = nn.Linear(condition, 3 * branches * width)
        if not self.project.weight.is_meta:
            nn.init.zeros_(self.project.weight)
            nn.init.zeros_(self.project.bias)

    def forward(self, condition: Tensor | None) -> list[tuple[Tensor, Tensor, Tensor]]:
        """(batch, condition) → (shift, scale, gate) of each branch, (batch, 1, width)."""
        if condition is None:
            raise InputError("the blocks of this model are modulated by a condition, and none is given")
        values = self.project(nn.functional.silu(condition))[:, None].chunk(3 * self.branches, dim=-1)
        return list(zip(values[0::3], values[1::3], values[2::3], strict=True))
