"""Int8 weights: symmetric quantisation with one scale per group of input features (idea: llama.cpp's Q8_0, with groups
of 32), or one per output row.

A matrix is `weight` (out, in) int8 and `weight_scale` (out, groups) float32: w ≈ weight · weight_scale. Activations are
float32. A compiled kernel multiplies the int8 weights; without Numba, and for so many tokens that torch is faster, the
matrix is dequantised for each product.
"""

from __future__ import annotations

from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.engine.compiler import can_compile, log_compilation
from headway.engine.swap import swap_matrices
from headway.errors import ConfigError
from headway.layers.linear import Linear, TokenTable

METHOD = "headway-int8"  # config.json: quantization_config.quant_method
QMAX = 127
GROUP = 64  # default number of input features that share a scale
PER_ROW = 0  # as a group: one scale per output row
DEQUANTISE_TOKENS = 256  # from this many tokens on, dequantising and torch's product are faster
STEP = 16  # group sizes are a multiple of the kernel's step


def group_size(inputs: int, group: int = GROUP) -> int:
    """The multiple of 16 nearest to `group` that divides the number of inputs; all inputs if there is none."""
    if group < 0 or group % STEP:
        raise ConfigError(
            f"group {group} is no multiple of {STEP}: choose one, or {PER_ROW} for one scale per output row"
        )
    sizes = [size for size in range(STEP, inputs + 1, STEP) if inputs % size == 0]
    return min(sizes, key=lambda size: abs(size - group), default=inputs) if group else inputs


def quantise_weight(weight: Tensor, group: int = GROUP) -> tuple[Tensor, Tensor]:
    """Returns (int8 (out, in), scale (out, groups)); `group_size(in, group)` inputs share a scale."""
    outputs, inputs = weight.shape
    size = group_size(inputs, group)
    parts = weight.detach().float().view(outputs, inputs // size, size)
    scale = parts.abs().amax(-1) / QMAX  # (out, groups)
    safe = torch.where(scale > 0, scale, torch.ones_like(scale))
    codes = (parts / safe[..., None]).round().clamp(-QMAX, QMAX)
    return codes.to(torch.int8).view(outputs, inputs).contiguous(), scale.contiguous()


def dequantise(weight: Tensor, scale: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Inverse of `quantise_weight` up to rounding: (out, in)."""
    parts = weight.view(*scale.shape, -1).to(dtype)
    return parts.mul_(scale.to(dtype)[..., None]).view(weight.shape)


def round_tokens(x: Tensor, groups: int) -> Tensor:
    """Each token (…, in) rounded to int16 and back, as the compiled product rounds it: both paths then give the same
    result up to the order of the sum, however many tokens a batch has."""
    largest = torch.linalg.vector_norm(x, torch.inf, dim=-1, keepdim=True)
    limit = min(torch.iinfo(torch.int16).max, (2**31 - 1) // (QMAX * (x.shape[-1] // groups // 8 + 2)))
    factor = torch.where(largest > 0, limit / largest, torch.zeros_like(largest))
    return (x * factor).round_().mul_(largest / limit)


class Int8Weight:
    """A tensor-like weight: `F.linear` uses the int8 kernel, every other torch function the dequantised matrix."""

    def __init__(self, codes: Tensor, scale: Tensor):
        self.codes, self.scale = codes, scale

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return dequantise(self.codes, self.scale, dtype)

    def linear(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """(…, in) → (…, out)"""
        if not self._can_compile(x):
            return F.linear(x, self.dense(x.dtype), bias)
        if x.numel() >= DEQUANTISE_TOKENS * x.shape[-1]:
            return F.linear(round_tokens(x, self.scale.shape[1]), self.dense(x.dtype), bias)
        log_compilation()
        from headway.engine.matmul import matmul

        y = matmul(x, self.codes, self.scale)
        return y if bias is None else y.add_(bias)

    def _can_compile(self, x: Tensor) -> bool:
        plain = x.device.type == "cpu" and x.dtype == torch.float32 and self.codes.is_contiguous()
        return plain and not torch.is_grad_enabled() and can_compile()

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is F.linear and isinstance(args[1], cls):
            return args[1].linear(args[0], args[2] if len(args) > 2 else (kwargs or {}).get("bias"))
        dense = [arg.dense() if isinstance(arg, cls) else arg for arg in args]
        return function(*dense, **(kwargs or {}))


class _Int8Module(nn.Module):
    """Holds weight and scale as buffers: saved and moved with the model, never trained."""

    weight: Tensor
    weight_scale: Tensor

    def __init__(self, outputs: int, inputs: int, *, group: int, device: torch.device | None = None):
        super().__init__()
        self.group = group
        self.register_buffer("weight", torch.empty(outputs, inputs, dtype=torch.int8, device=device))
        self.register_buffer("weight_scale", torch.empty(outputs, inputs // group_size(inputs, group), device=device))

    @property
    def table(self) -> Any:
        return Int8Weight(self.weight, self.weight_scale)

    def _quantise(self, weight: Tensor) -> Self:
        if not weight.is_meta:
            self.weight, self.weight_scale = quantise_weight(weight, self.group)
        return self


class Int8Linear(_Int8Module):
    def __init__(
        self, inputs: int, outputs: int, *, bias: bool, group: int = GROUP, device: torch.device | None = None
    ):
        super().__init__(outputs, inputs, group=group, device=device)
        self.in_features, self.out_features = inputs, outputs
        self.bias = nn.Parameter(torch.empty(outputs, device=device)) if bias else None

    @classmethod
    def of(cls, linear: Linear, *, group: int = GROUP) -> Self:
        """From a plain linear layer, whose bias it keeps. On the meta device, the result is on the meta device."""
        meta = torch.device("meta")
        made = cls(linear.in_features, linear.out_features, bias=False, group=group, device=meta)
        made.bias = linear.bias
        return made._quantise(linear.weight)

    def forward(self, x: Tensor) -> Tensor:  # (…, in) → (…, out)
        return Int8Weight(self.weight, self.weight_scale).linear(x, self.bias)


class Int8Table(_Int8Module):
    """A token table; the rows that are looked up are dequantised."""

    @classmethod
    def of(cls, table: TokenTable, *, group: int = GROUP) -> Self:
        rows, width = table.weight.shape
        return cls(rows, width, group=group, device=torch.device("meta"))._quantise(table.weight)

    def forward(self, ids: Tensor) -> Tensor:  # (…) → (…, width)
        return dequantise(self.weight[ids], self.weight_scale[ids])


def quantise(model: nn.Module, *, group: int = GROUP) -> nn.Module:
    """Converts a model's matrices to int8, in place and one by one. A model on the meta device becomes one that int8
    tensors can be loaded into."""
    with torch.no_grad():
        swap_matrices(
            model,
            linear=lambda linear: Int8Linear.of(linear, group=group),
            table=lambda table: Int8Table.of(table, group=group),
        )
    return model


def quantization_config(group: int) -> dict[str, Any]:
    return {"quant_method": METHOD, "bits": 8, "group_size": group or None}
