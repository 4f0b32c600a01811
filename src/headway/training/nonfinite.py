"""Finds the module where a loss or gradient first becomes non-finite, by running the batch again with hooks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import TrainingError


@dataclass(frozen=True)
class NonFiniteReport:
    first: str | None  # the module, the loss itself or the gradient of a parameter; None: everything is finite
    max_abs: list[tuple[str, float]]  # (module, largest absolute value of its output) in order of execution


def find_nonfinite(model: nn.Module, run: Callable[[], Tensor]) -> NonFiniteReport:
    """Run a forward and backward pass. Reports the first module in order of execution whose output is not finite; if
    there is none, the loss, or the last parameter whose gradient is not finite. `run` computes the loss."""
    overflowed: list[str] = []  # nan or +inf
    masked: list[str] = []  # -inf only, which may come from a mask
    max_abs: list[tuple[str, float]] = []

    def make_hook(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            tensors = [tensor for tensor in _tensors(output) if tensor.numel()]
            if tensors:
                max_abs.append((name, max(float(tensor.abs().max()) for tensor in tensors)))
            for tensor in tensors:
                finite = tensor.isfinite()
                if not finite.all():
                    (masked if (finite | tensor.isneginf()).all() else overflowed).append(name)

        return hook

    names = [(name or "the model", module) for name, module in model.named_modules()]
    handles = [module.register_forward_hook(make_hook(name)) for name, module in names]
    try:
        total = run()
    finally:
        for handle in handles:
            handle.remove()
    if not total.isfinite().all():
        return NonFiniteReport(next(iter(overflowed + masked), "the loss itself"), max_abs)
    model.zero_grad(set_to_none=True)
    total.backward()
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return NonFiniteReport(f"the gradient of {name}", max_abs)
    return NonFiniteReport(None, max_abs)


@torch.no_grad()
def require_finite(model: nn.Module, *, step: int) -> None:
    """Raise if a weight is not finite, before it is saved: an update can overflow although its gradient did not."""
    named = {name: tensor for name, tensor in model.named_parameters() if tensor.numel()}
    largest = torch.stack([norm.cpu() for norm in torch._foreach_norm(list(named.values()), float("inf"))])
    if not largest.isfinite().all():
        name = list(named)[int((~largest.isfinite()).nonzero()[0])]
        raise TrainingError(
            f"step {step}: the update made weights non-finite, first {name}; they were not saved. "
            "Lower lr; the last state was saved before"
        )


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


def format_locations(where: list[str], *, shown: int = 8) -> str:
    """The source lines of a batch as text, at most `shown` of them."""
    more = f" and {len(where) - shown} more" if len(where) > shown else ""
    return ", ".join(where[:shown]) + more


OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "bad_alloc",
    "unable to allocate",
    "could not create a primitive",  # oneDNN's message when a matrix product does not fit in memory
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device or the host is out of memory."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in OUT_OF_MEMORY)


@contextmanager
def explain_out_of_memory() -> Iterator[None]:
    """Turn out-of-memory errors outside the micro-batches (load, update, evaluation, save) into a TrainingError."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"out of memory in an update, an evaluation or a save, where smaller micro-batches do not help ({error}); "
            "earlier states are intact. Free memory and resume, or train a smaller model or adapters (--lora 8)"
        ) from error
