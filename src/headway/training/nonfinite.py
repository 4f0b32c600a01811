"""When a number stops being finite, who made it so? The batch is run again with a listener at every module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import TrainingError


@dataclass(frozen=True)
class Finding:
    culprit: str | None  # a module (a tap is one), the loss itself or a parameter's gradient; None: all was finite
    trail: list[tuple[str, float]]  # every output in order of execution, as its module and largest absolute value


def examine(model: nn.Module, run: Callable[[], Tensor]) -> Finding:
    """Looks for the first module in order of execution whose output is not finite when `run` computes the loss; failing
    that, for the loss itself, or the parameter nearest the loss whose gradient is not finite."""
    overflowed: list[str] = []  # nan or +inf
    masked: list[str] = []  # -inf only, which a mask may mean
    trail: list[tuple[str, float]] = []

    def listen(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            tensors = [tensor for tensor in _tensors(output) if tensor.numel()]
            if tensors:
                trail.append((name, max(float(tensor.abs().max()) for tensor in tensors)))
            for tensor in tensors:
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
        return Finding(next(iter(overflowed + masked), "the loss itself"), trail)
    model.zero_grad(set_to_none=True)
    total.backward()
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            return Finding(f"the gradient of {name}", trail)
    return Finding(None, trail)


@torch.no_grad()
def require_finite(model: nn.Module, *, step: int) -> None:
    """An update can overflow though its gradient did not; weights like that are never saved."""
    named = {name: tensor for name, tensor in model.named_parameters() if tensor.numel()}
    largest = torch.stack([norm.cpu() for norm in torch._foreach_norm(list(named.values()), float("inf"))])
    if not largest.isfinite().all():
        name = list(named)[int((~largest.isfinite()).nonzero()[0])]
        raise TrainingError(
            f"step {step}: the update left weights that are not finite, {name} first; they were not saved. "
            "Lower lr; the last state is from before"
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


def lines(where: list[str], *, shown: int = 8) -> str:
    """The places a batch came from, shortened."""
    more = f" and {len(where) - shown} more" if len(where) > shown else ""
    return ", ".join(where[:shown]) + more


OUT_OF_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "bad_alloc",
    "unable to allocate",
    "could not create a primitive",  # all that oneDNN says of a matrix product for which there is no room
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the device or the machine has no room left."""
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in OUT_OF_MEMORY)


@contextmanager
def needing_room() -> Iterator[None]:
    """What needs memory and cannot be cut into smaller parts: a state read, an update, an evaluation, a save."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"out of memory in an update, an evaluation or a save, where smaller micro-batches do not help ({error}); "
            "what was saved before is whole. Free memory and resume, or train a smaller model or adapters (--lora 8)"
        ) from error
