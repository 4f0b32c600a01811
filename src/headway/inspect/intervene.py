"""Interventions: ablate or scale heads and branches, patch in activations of another run, add a steering vector.

All of them are `replace`: a forward hook on a tap that returns another value. Each is a context manager and removes its
hooks on exit. `record` sees the replaced value; of two interventions on one tap, the outer one is applied last.

    with ablate(model, "stack.blocks.3.attention", heads=[2]):
        without = model(ids).logits
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.parts import Names, attentions_of, check_fired, match_names, taps_of, unique
from headway.layers.recurrent import AdditiveAttention, MultiplicativeAttention

Change = Callable[[Tensor], Tensor]


@contextmanager
def replace(model: nn.Module, names: Names, change: Change) -> Iterator[None]:
    """Replaces the value at the named taps by `change(value)`. A tap that no forward pass reaches raises on exit."""
    taps = taps_of(model)
    matches = match_names(names, taps, kind="tap")
    fired: set[str] = set()
    with ExitStack() as hooks:
        for name in unique(matches):
            _check_replaceable(model, name)
            hooks.callback(taps[name].register_forward_hook(_hook(name, change, fired), prepend=True).remove)
        yield
    check_fired(matches, fired, taps)


def scale(
    model: nn.Module, parts: Names, factor: float, *, heads: Sequence[int] | None = None
) -> AbstractContextManager[None]:
    """Multiplies what a part adds to the residual stream. A part is an attention, a cross-attention or a feed-forward,
    given by name or pattern (`stack.blocks.*.attention`). With `heads`, the inputs of the output projection from these
    heads are multiplied, and its bias is left alone; without, the whole branch is, bias included."""
    if heads is None:
        branches = {name.removesuffix("_residual.branch"): name for name in taps_of(model) if name.endswith(".branch")}
        chosen = unique(match_names(parts, branches, kind="attention or feed-forward"))
        return replace(model, [branches[part] for part in chosen], lambda branch: branch * factor)
    attentions = attentions_of(model)
    chosen = unique(match_names(parts, attentions, kind="attention"))
    for part in chosen:
        for head in heads:
            if not 0 <= head < attentions[part].heads:
                raise InputError(f"heads: {part} has heads 0 to {attentions[part].heads - 1}, not {head}")

    def change(z: Tensor) -> Tensor:  # (batch, head, query, head_size)
        factors = torch.ones(z.shape[1], dtype=z.dtype, device=z.device)
        factors[list(heads)] = factor
        return z * factors[:, None, None]

    return replace(model, [f"{part}.z" for part in chosen], change)


def ablate(model: nn.Module, parts: Names, *, heads: Sequence[int] | None = None) -> AbstractContextManager[None]:
    """Zero-ablates these heads, or the whole branch with its bias. Ablating every head leaves the bias of the output
    projection, if it has one; ablating the branch does not."""
    return scale(model, parts, 0.0, heads=heads)


def patch(
    model: nn.Module,
    name: str,  # a tap or a pattern
    value: Tensor,
    *,
    positions: Sequence[int] | None = None,  # None: all
) -> AbstractContextManager[None]:
    """Activation patching: puts in a value of another run, for instance one from `record`. With `positions`, only at
    these; `value` then has all positions of the other run or these only. A batch of one is broadcast."""

    def change(old: Tensor) -> Tensor:  # (…, position, any)
        index = _index(name, range(old.shape[-2]) if positions is None else positions, old)
        rows, new = old.index_select(-2, index), value.to(old)
        if new.shape[-2] == old.shape[-2]:
            new = new.index_select(-2, index)
        if new.shape[1:] != rows.shape[1:] or len(new) not in (1, len(rows)):
            raise InputError(f"{name} takes a value of shape {tuple(rows.shape)}, not {tuple(value.shape)}")
        return old.index_copy(old.ndim - 2, index, new.expand_as(rows))

    return replace(model, name, change)


def steer(
    model: nn.Module,
    name: str,  # a tap or a pattern
    vector: Tensor,  # (width)
    *,
    strength: float = 1.0,
    positions: Sequence[int] | None = None,  # None: all
) -> AbstractContextManager[None]:
    """Adds `strength` times the vector (Turner et al. 2023: activation addition)."""

    def change(old: Tensor) -> Tensor:  # (…, position, width)
        if vector.shape != old.shape[-1:]:
            raise InputError(f"{name} takes a vector of {old.shape[-1]} numbers, not {tuple(vector.shape)}")
        push = strength * vector.to(old)
        if positions is None:
            return old + push
        index = _index(name, positions, old)
        return old.index_add(old.ndim - 2, index, push.expand(*old.shape[:-2], len(index), -1))

    return replace(model, name, change)


def _hook(name: str, change: Change, fired: set[str]) -> Any:
    def hook(_module: nn.Module, _inputs: Any, value: Tensor) -> Tensor:
        fired.add(name)
        return change(value)

    return hook


def _check_replaceable(model: nn.Module, name: str) -> None:
    if isinstance(model.get_submodule(name.rpartition(".")[0]), AdditiveAttention | MultiplicativeAttention):
        raise InputError(f"{name} can be recorded but not replaced: the value is used before the tap")


def _index(name: str, positions: Sequence[int], value: Tensor) -> Tensor:
    length = value.shape[-2]
    for at in positions:
        if not -length <= at < length:
            raise InputError(f"positions: {name} has {length} positions, so {at} is out of range")
    return torch.tensor([at % length for at in positions], device=value.device)
