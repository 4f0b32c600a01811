"""Makes a model fast in place: converts its weights and compiles its decoding step."""

from __future__ import annotations

from typing import Literal

from torch import nn

from headway.engine.bf16 import convert_to_bf16
from headway.engine.inplace import swap_blocks
from headway.engine.int8 import GROUP, quantise
from headway.engine.step import FastStep
from headway.errors import ConfigError
from headway.models.decoder import Decoder

Stored = Literal["fp32", "bf16", "int8"]


def prepare(model: nn.Module, weights: Stored | None = None, *, group: int | None = None) -> nn.Module:
    """Returns `model` itself. `weights`: the new storage format of its matrices (None: unchanged); for int8, `group`
    inputs share a scale (None: about 64; 0: one scale per output row). Without Numba, or if the model has a part that
    cannot be compiled, it keeps its plain step, on the converted weights."""
    if weights == "int8":
        quantise(model, group=GROUP if group is None else group)
    elif weights == "bf16":
        convert_to_bf16(model)
    elif weights == "fp32":
        model.float()
    elif weights is not None:
        raise ConfigError(f"weights {weights!r} is not one of fp32, bf16, int8")
    if group is not None and weights != "int8":
        raise ConfigError(f"group {group} is for int8 weights only")
    swap_blocks(model, fast=True)
    for part in model.modules():
        if isinstance(part, Decoder):
            part.step = FastStep(part)  # type: ignore[method-assign]
    return model


def unsupported_reason(model: nn.Module) -> str | None:
    """Why the step of a prepared model is not compiled; None if it is, or if it has not run yet."""
    steps = [getattr(part, "step", None) for part in model.modules()]
    return next((step.reason for step in steps if isinstance(step, FastStep) and step.reason), None)


def release(model: nn.Module) -> nn.Module:
    """Restores the plain step and the plain blocks."""
    swap_blocks(model, fast=False)
    for part in model.modules():
        if isinstance(part, Decoder):
            part.__dict__.pop("step", None)
    return model
