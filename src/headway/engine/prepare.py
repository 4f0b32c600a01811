"""The same model, made fast in place: its matrices stored as asked, its step compiled. Nothing is copied
that the model does not let go of."""

from __future__ import annotations

from typing import Literal

from torch import nn

from headway.engine.bf16 import halve
from headway.engine.int8 import GROUP, quantise
from headway.engine.step import FastStep
from headway.errors import ConfigError
from headway.models.decoder import Decoder

Stored = Literal["fp32", "bf16", "int8"]


def prepare(model: nn.Module, weights: Stored | None = None, *, group: int | None = None) -> nn.Module:
    """Returns `model` itself. `weights`: how its matrices are stored from now on (None: as they are); in int8, `group`
    inputs share a scale (None: about 64; 0: all inputs of an output). Without Numba, or where a part of it cannot be
    compiled, the model runs as it did, from the weights asked for."""
    if weights == "int8":
        quantise(model, group=GROUP if group is None else group)
    elif weights == "bf16":
        halve(model)
    elif weights == "fp32":
        model.float()
    elif weights is not None:
        raise ConfigError(f"weights {weights!r} is not one of fp32, bf16, int8")
    if group is not None and weights != "int8":
        raise ConfigError(f"group {group} is for int8 weights only")
    for part in model.modules():
        if isinstance(part, Decoder):
            part.step = FastStep(part)  # type: ignore[method-assign]
    return model


def why_not(model: nn.Module) -> str | None:
    """Why a prepared model's step is not compiled; None when it is, or is yet to be."""
    steps = [getattr(part, "step", None) for part in model.modules()]
    return next((step.reason for step in steps if isinstance(step, FastStep) and step.reason), None)


def release(model: nn.Module) -> nn.Module:
    """The plain step again."""
    for part in model.modules():
        if isinstance(part, Decoder):
            part.__dict__.pop("step", None)
    return model
