"""Makes a model fast in place: converts its weights and compiles its decoding step."""

from __future__ import annotations

from typing import Literal, TypeVar

from headway.engine.bf16 import convert_to_bf16
from headway.engine.inplace import swap_blocks
from headway.engine.int8 import GROUP, quantise
from headway.engine.relative import swap_biases
from headway.engine.step import FastStep
from headway.errors import ConfigError
from headway.models.decoder import Decoder
from headway.models.protocol import Model

Stored = Literal["fp32", "bf16", "int8"]
M = TypeVar("M", bound=Model)


def prepare(model: M, weights: Stored | None = None, *, group: int | None = None) -> M:
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
    swap_biases(model, fast=True)
    for decoder in _decoders(model):
        decoder.step = FastStep(decoder)  # type: ignore[method-assign]
    return model


def unsupported_reason(model: Model) -> str | None:
    """Why the step of a prepared model is not compiled; None if it is, or if it has not run yet."""
    steps = [decoder.step for decoder in _decoders(model)]
    return next((step.reason for step in steps if isinstance(step, FastStep) and step.reason), None)


def release(model: M) -> M:
    """Restores the plain step and the plain blocks."""
    swap_blocks(model, fast=False)
    swap_biases(model, fast=False)
    for decoder in _decoders(model):
        decoder.__dict__.pop("step", None)
    return model


def _decoders(model: Model) -> list[Decoder]:
    return [part.model for part in model.parts if part.name == "decoder"]
