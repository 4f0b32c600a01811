"""Weight formats: by name, in config.json, and of a model in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.engine.bf16 import Bf16Linear, Bf16Table, choose_products
from headway.engine.int8 import GROUP, METHOD, PER_ROW, STEP, Int8Linear, Int8Table, dequantise, quantization_config
from headway.engine.prepare import prepare
from headway.errors import ConfigError
from headway.models.protocol import Model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
NAMES = ("int8", "bf16", "fp16", "fp32")
SCALE = "_scale"  # suffix of the name of an int8 weight's scale


@dataclass(frozen=True)
class Int8:
    """Matrices in int8, everything else in float32; about `group` inputs share a scale, or all inputs of a row."""

    group: int = GROUP

    def __str__(self) -> str:
        return {GROUP: "int8", PER_ROW: "int8, one scale per row"}.get(self.group, f"int8, groups of {self.group}")


@dataclass(frozen=True)
class Bf16:
    """Matrices in bfloat16, everything else in float32."""

    def __str__(self) -> str:
        return "bf16"


Weights = torch.dtype | Int8 | Bf16


def requested_weights(
    name: str | None,
    *,
    dtype: str | torch.dtype | None = None,
    group: int | None = None,
    found: Int8 | None = None,
) -> Weights | None:
    """The format for a name such as "int8", or for a torch dtype; None: the format of the file. int8 without a group is
    the format `found` in the file, if that is int8."""
    if name is not None and dtype is not None:
        raise ConfigError(f"weights {name!r} and dtype {dtype!r} are two names for one setting: give one of them")
    if name is not None and name not in NAMES:
        raise ConfigError(f"weights {name!r}: choose one of {', '.join(NAMES)}")
    if group is not None and name != "int8":
        raise ConfigError(f"group {group} is for int8 weights")
    if isinstance(dtype, str) and dtype not in DTYPES:
        raise ConfigError(f"dtype {dtype!r} is not one of {', '.join(DTYPES)}")
    if name is None:
        return DTYPES[dtype] if isinstance(dtype, str) else dtype
    int8 = Int8(group) if group is not None else found or Int8()
    known: dict[str, Weights] = {"int8": int8, "bf16": Bf16(), "fp16": torch.float16, "fp32": torch.float32}
    return known[name]


def weights_from_config(foreign: Mapping[str, Any]) -> Int8 | None:
    """The integer format in a config.json; None if the weights are plain floats."""
    section = foreign.get("quantization_config")
    if section is None:
        return None
    method = section.get("quant_method") if isinstance(section, dict) else section
    if method != METHOD:
        raise ConfigError(f"config.json: quantization_config: method {method!r} is not supported; {METHOD!r} is")
    group = section.get("group_size")
    fits = group is None or (type(group) is int and group > 0 and group % STEP == 0)
    if not fits or section != quantization_config(group):
        raise ConfigError(
            f"config.json: quantization_config is {section}: "
            f"expected bits 8 and group_size null or a multiple of {STEP}"
        )
    return Int8(PER_ROW if group is None else group)


def weights_to_config(weights: Weights) -> dict[str, Any]:
    """The inverse: the entries for config.json."""
    entries = {"dtype": str(float_type(weights)).removeprefix("torch.")}
    return (
        {**entries, "quantization_config": quantization_config(weights.group)} if isinstance(weights, Int8) else entries
    )


def weights_of(model: nn.Module) -> Weights:
    """The format of a model in memory."""
    for module in model.modules():
        if isinstance(module, Bf16Linear | Bf16Table):
            return Bf16()
        if isinstance(module, Int8Linear | Int8Table):
            return Int8(module.group)
    return next(model.parameters()).dtype


def short_name(weights: Weights) -> str:
    plain = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
    return plain.get(weights, str(weights))  # type: ignore[arg-type]


def float_type(weights: Weights) -> torch.dtype:
    """The dtype of the floats in a file with these weights."""
    if isinstance(weights, torch.dtype):
        return weights
    return torch.bfloat16 if isinstance(weights, Bf16) else torch.float32


def convert_weights(model: Model, weights: Weights | None, *, published: Iterable[str] = ()) -> Model:
    """Converts a float model in place and compiles its step; None: keeps the format. `published`: the data types in its
    file, as safetensors names them."""
    if isinstance(weights, Int8):
        return prepare(model, "int8", group=weights.group)
    prepare(model, "bf16" if isinstance(weights, Bf16) else None)
    if isinstance(weights, Bf16) and "BF16" in published:
        choose_products(model)
    return model


def to_file(state: Mapping[str, Tensor], weights: Weights) -> dict[str, Tensor]:
    """The tensors to save: all floats in one dtype, so that every library can read them."""
    dtype = float_type(weights)
    return {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in state.items()}


def dequantise_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Replaces int8 weights and their scales by float matrices."""
    return {
        name: dequantise(tensor, state[name + SCALE]) if name + SCALE in state else tensor
        for name, tensor in state.items()
        if not name.endswith(SCALE)
    }


def weight_tensors(model: nn.Module) -> list[Tensor]:
    """All weights in any format, each tensor once, without scales."""
    kinds = Int8Linear | Int8Table | Bf16Linear | Bf16Table
    return [*model.parameters(), *(module.weight for module in model.modules() if isinstance(module, kinds))]


def weight_bytes(model: nn.Module) -> int:
    """The size of a model in memory, with scales."""
    return sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
