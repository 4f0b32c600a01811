"""The types a model's weights can have: as a person names them, as config.json tells them, as they are
now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.engine.bf16 import Bf16Linear, Bf16Table
from headway.engine.int8 import GROUP, METHOD, ROW, STEP, Int8Linear, Int8Table, dequantise, quantization_config
from headway.engine.prepare import prepare
from headway.errors import ConfigError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NAMES = ("int8", "bf16", "fp16", "fp32")
SCALE = "_scale"  # after the name of an int8 weight


@dataclass(frozen=True)
class Int8:
    """Matrices in 8-bit integers, all else in float32; about `group` inputs share a scale, or all of an output's."""

    group: int = GROUP

    def __str__(self) -> str:
        return {GROUP: "int8", ROW: "int8, one scale an output"}.get(self.group, f"int8, groups of {self.group}")


@dataclass(frozen=True)
class Half:
    """Matrices in bfloat16, all else in float32."""

    def __str__(self) -> str:
        return "bf16"


Weights = torch.dtype | Int8 | Half


def weights_asked(
    name: str | None,
    *,
    dtype: str | torch.dtype | None = None,
    group: int | None = None,
    found: Int8 | None = None,
) -> Weights | None:
    """What a person asks for, by its name here or by torch's; None: whatever the file has. int8 without a group is what
    was `found` in the file, if that is int8."""
    if name is not None and dtype is not None:
        raise ConfigError(f"weights {name!r} and dtype {dtype!r} say the same thing: give one of them")
    if name is not None and name not in NAMES:
        raise ConfigError(f"weights {name!r}: choose one of {', '.join(NAMES)}")
    if group is not None and name != "int8":
        raise ConfigError(f"group {group} is for int8 weights")
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if name is None:
        return DTYPES[dtype] if isinstance(dtype, str) else dtype
    int8 = Int8(group) if group is not None else found or Int8()
    known: dict[str, Weights] = {"int8": int8, "bf16": Half(), "fp16": torch.float16, "fp32": torch.float32}
    return known[name]


def weights_said(foreign: Mapping[str, Any]) -> Int8 | None:
    """What config.json says of integers: None when the weights are plain floats."""
    said = foreign.get("quantization_config")
    if said is None:
        return None
    method = said.get("quant_method") if isinstance(said, dict) else said
    if method != METHOD:
        raise ConfigError(f"config.json: quantization_config: method {method!r} is not supported; {METHOD!r} is")
    group = said.get("group_size")
    fits = group is None or (type(group) is int and group > 0 and group % STEP == 0)
    if not fits or said != quantization_config(group):
        raise ConfigError(
            f"config.json: quantization_config is {said}: expected bits 8 and group_size null or a multiple of {STEP}"
        )
    return Int8(ROW if group is None else group)


def weights_told(weights: Weights) -> dict[str, Any]:
    """The inverse: what config.json is to say."""
    told = {"dtype": str(float_type(weights)).removeprefix("torch.")}
    return {**told, "quantization_config": quantization_config(weights.group)} if isinstance(weights, Int8) else told


def weights_of(model: nn.Module) -> Weights:
    """What a model's weights are now."""
    for module in model.modules():
        if isinstance(module, Bf16Linear | Bf16Table):
            return Half()
        if isinstance(module, Int8Linear | Int8Table):
            return Int8(module.group)
    return next(model.parameters()).dtype


def short_name(weights: Weights) -> str:
    plain = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    return plain.get(weights, str(weights))  # type: ignore[arg-type]


def float_type(weights: Weights) -> torch.dtype:
    """Of the floats in a file with these weights."""
    if isinstance(weights, torch.dtype):
        return weights
    return torch.bfloat16 if isinstance(weights, Half) else torch.float32


def give_weights(model: nn.Module, weights: Weights | None) -> nn.Module:
    """A model of floats gets the weights asked for, in place, and a fast step; None: as they are."""
    if isinstance(weights, Int8):
        return prepare(model, "int8", group=weights.group)
    return prepare(model, "bf16" if isinstance(weights, Half) else None)


def to_file(state: Mapping[str, Tensor], weights: Weights) -> dict[str, Tensor]:
    """Tensors as they are kept: floats in one type, so that every library can read them."""
    dtype = float_type(weights)
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def written_out(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Int8 weights and their scales as plain matrices."""
    return {
        name: dequantise(tensor, state[name + SCALE]) if name + SCALE in state else tensor
        for name, tensor in state.items()
        if not name.endswith(SCALE)
    }


def weights_in(model: nn.Module) -> list[Tensor]:
    """What was learned, in whatever type, each tensor once."""
    kinds = Int8Linear | Int8Table | Bf16Linear | Bf16Table
    return [*model.parameters(), *(module.weight for module in model.modules() if isinstance(module, kinds))]


def weight_bytes(model: nn.Module) -> int:
    """Of all that is kept of a model, scales included."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
