"""Train: when a number stops being finite, who made it so? The batch is run again with a listener at every module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn


def first_non_finite(model: nn.Module, run: Callable[[], Tensor]) -> str | None:
    """The first module in order of execution whose output is not finite when `run` computes the loss; failing that,
    the loss itself, or the parameter nearest the loss whose gradient is not finite; or None."""
    overflowed: list[str] = []  # nan or +inf
    masked: list[str] = []  # -inf only, which a mask may mean

    def listen(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            for tensor in _tensors(output):
                finite = tensor.isfinite()
                if not finite.all():
                    (masked if (finite | tensor.isneginf()).all() else overflowed).append(name)

        return hook

    names = [(name or "the model", module) for name, module in model.named_modules()]
    handles = [module.register_forward_hook(listen(name)) for name, module in names]
    try:
        total = run()
    finally:
        for handle in handles:
            handle.remove()
    if not total.isfinite().all():
        return next(iter(overflowed + masked), "the loss itself")
    model.zero_grad(set_to_none=True)
    total.backward()
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return f"the gradient of {name}"
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        if value.is_floating_point():
            yield value.detach()
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _tensors(getattr(value, field.name))


def lines(where: list[str], *, shown: int = 8) -> str:
    """The places a batch came from, shortened."""
    more = f" and {len(where) - shown} more" if len(where) > shown else ""
    return ", ".join(where[:shown]) + more


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device or the machine has no room left."""
    text = str(error).lower()
    return isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and ("out of memory" in text or "can't allocate memory" in text)
    )
