"""What if? Takes heads out, turns them up or down, puts in what another run had, pushes in a direction.

All of it is one thing, `replace`: a hook on a tap that gives back another value. Each is a context manager and leaves
the model as it was. A recording beside it hears the replaced value; of two on one tap, the outer has the last word.

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
from headway.inspect.parts import Names, attentions_of, choose, must_have_fired, taps_of, unique
from headway.layers.recurrent import AdditiveAttention

Change = Callable[[Tensor], Tensor]


@contextmanager
def replace(model: nn.Module, names: Names, change: Change) -> Iterator[None]:
    """What passes the named taps becomes `change(value)`. A name that no pass goes through is an error on exit."""
    taps = taps_of(model)
    chosen = choose(names, taps, kind="tap")
    fired: set[str] = set()
    with ExitStack() as hooks:
        for name in unique(chosen):
            _refuse_one_way(model, name)
            hooks.callback(taps[name].register_forward_hook(_changer(name, change, fired), prepend=True).remove)
        yield
    must_have_fired(chosen, fired, taps)


def scale(
    model: nn.Module, parts: Names, factor: float, *, heads: Sequence[int] | None = None
) -> AbstractContextManager[None]:
    """Multiplies what a part adds to the residual stream. A part is an attention, a cross-attention or a feed-forward
    by its name or a pattern (`stack.blocks.*.attention`). With `heads`, what these heads hand to the output projection
    is multiplied, and its bias, which is no head's, stays; without, the whole branch is, bias included."""
    if heads is None:
        branches = {name.removesuffix("_residual.branch"): name for name in taps_of(model) if name.endswith(".branch")}
        chosen = unique(choose(parts, branches, kind="attention or feed-forward"))
        return replace(model, [branches[part] for part in chosen], lambda branch: branch * factor)
    attentions = attentions_of(model)
    chosen = unique(choose(parts, attentions, kind="attention"))
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
    """Takes parts out: these heads, or the whole branch with its bias. All heads of a layer are the whole branch if the
    output projection has no bias; if it has, the bias is what stays of the branch."""
    return scale(model, parts, 0.0, heads=heads)


def patch(
    model: nn.Module,
    name: str,  # a tap or a pattern
    value: Tensor,
    *,
    positions: Sequence[int] | None = None,  # None: all
) -> AbstractContextManager[None]:
    """Puts in a value from another run, for instance one that `record` heard there. With `positions`, only at these;
    `value` then is the whole of what the other run had, or its rows at these positions. A batch of one serves all."""

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


def _changer(name: str, change: Change, fired: set[str]) -> Any:
    def hook(_module: nn.Module, _inputs: Any, value: Tensor) -> Tensor:
        fired.add(name)
        return change(value)

    return hook


def _refuse_one_way(model: nn.Module, name: str) -> None:
    if isinstance(model.get_submodule(name.rpartition(".")[0]), AdditiveAttention):
        raise InputError(f"{name} can be recorded but not replaced: it is heard after its use")


def _index(name: str, positions: Sequence[int], value: Tensor) -> Tensor:
    length = value.shape[-2]
    for at in positions:
        if not -length <= at < length:
            raise InputError(f"positions: {name} has {length} of them, so {at} is not there")
    return torch.tensor([at % length for at in positions], device=value.device)
