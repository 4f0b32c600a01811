"""`with record(model, "decoder.*.cross.weights") as recorded:` keeps the values at the named taps.

The forward pass stays on the fused kernel, which does not materialise scores and weights. They are computed beside it
from the kernel's queries and keys, for the selected layers, heads and queries only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.parts import Names, attentions_of, check_fired, match_names, taps_of, unique
from headway.layers.attend import take
from headway.layers.attention import Attention
from headway.layers.context import Context
from headway.layers.recurrent import AdditiveAttention, MultiplicativeAttention
from headway.layers.tap import Tap

LIMIT = 2 * 1024**3  # bytes
COMPUTED = ("scores", "weights")  # taps whose values the fused kernel does not materialise
Recorded = dict[str, list[Tensor]]


@contextmanager
def record(
    model: nn.Module,
    names: Names,  # tap names or patterns
    *,
    heads: Sequence[int] | None = None,  # None: all
    queries: Sequence[int] | None = None,  # query positions; -1 is the last; None: all
    limit: int = LIMIT,  # bytes of recorded values
) -> Iterator[Recorded]:
    """Maps each tap that fires to its values, one per forward pass. `heads` and `queries` select a part of the values
    at attention taps: scores, weights, q and z by both, k and v by the key/value heads of `heads`. Hooks are removed
    on exit, also after an error; a name that recorded nothing by then raises."""
    taps = taps_of(model)
    matches = match_names(names, taps, kind="tap")
    selection = _Selection(heads, queries)
    store = _Store(limit)
    with ExitStack() as hooks:
        computed: dict[str, _ComputedWeights] = {}
        for name in unique(matches):
            path, _, part = name.rpartition(".")
            owner = model.get_submodule(path)
            selection.check(owner, name)
            if isinstance(owner, Attention) and part in COMPUTED:
                computed.setdefault(path, _ComputedWeights(owner, store, selection, hooks)).names[part] = name
            else:
                hooks.callback(taps[name].register_forward_hook(_recorder(store, selection, owner, name)).remove)
        if (heads is not None or queries is not None) and not selection.used:
            raise InputError(f"heads= and queries= apply to attention taps, and {names!r} names none")
        for each in computed.values():
            each.register()
        yield store.values
    check_fired(matches, store.values, taps)


@contextmanager
def record_contexts(model: nn.Module, names: Names) -> Iterator[dict[str, Context]]:
    """Maps each named attention layer to the Context of its last forward pass: mask, positions, bias and memory."""
    attentions = attentions_of(model)
    contexts: dict[str, Context] = {}
    with ExitStack() as hooks:
        for name in unique(match_names(names, attentions, kind="attention")):

            def hook(_module: nn.Module, args: Any, given: dict[str, Any], name: str = name) -> None:
                contexts[name] = _context_of(args, given)

            hooks.callback(attentions[name].register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield contexts


def _context_of(args: Any, given: dict[str, Any]) -> Context:
    """Of the arguments of `Attention.forward`."""
    return given["context"] if "context" in given else args[1]


class _Store:
    """The recorded values, within a limit of bytes."""

    def __init__(self, limit: int):
        self.values: Recorded = {}
        self.limit, self.size = limit, 0

    def reserve(self, name: str, size: int) -> None:
        """Raises when `size` more bytes exceed the limit; called before a value is computed."""
        if self.size + size > self.limit:
            raise InputError(
                f"recording {name} takes {size:,} bytes beside {self.size:,} recorded, over limit={self.limit:,}: "
                "record fewer taps, set heads= or queries=, or raise the limit"
            )

    def keep(self, name: str, value: Tensor) -> None:
        self.reserve(name, value.nbytes)
        self.size += value.nbytes
        value = value.detach()
        if value.untyped_storage().nbytes() > value.nbytes:  # a view of memory that may be overwritten, such as a cache
            value = value.clone()
        self.values.setdefault(name, []).append(value)


class _Selection:
    """The selected heads and queries, without duplicates."""

    def __init__(self, heads: Sequence[int] | None, queries: Sequence[int] | None):
        self.heads = None if heads is None else list(dict.fromkeys(heads))
        self.queries = queries
        self.used = False

    def check(self, owner: nn.Module, name: str) -> None:
        if not isinstance(owner, Attention | AdditiveAttention | MultiplicativeAttention):
            return
        self.used = True
        count = owner.heads if isinstance(owner, Attention) else 1
        for head in self.heads or ():
            if not 0 <= head < count:
                raise InputError(f"heads: {name} has heads 0 to {count - 1}, not {head}")

    def rows(self, length: int, name: str) -> list[int] | None:
        """The query positions as non-negative indices; None: all."""
        if self.queries is None:
            return None
        for at in self.queries:
            if not -length <= at < length:
                raise InputError(f"queries: {name} has {length} query positions, so {at} is out of range")
        return list(dict.fromkeys(at % length for at in self.queries))

    def kv_heads(self, owner: Attention) -> list[int] | None:
        """The key/value head of each selected head."""
        return None if self.heads is None else [head * owner.kv_heads // owner.heads for head in self.heads]

    def value(self, owner: nn.Module, name: str, value: Tensor) -> Tensor:
        """The selected part of a tap's value."""
        if isinstance(owner, Attention) and name.endswith((".k", ".v")):
            return take(value, self.kv_heads(owner), None)
        if isinstance(owner, Attention | AdditiveAttention | MultiplicativeAttention):
            return take(value, self.heads, self.rows(value.shape[2], name))
        return value


class _ComputedWeights:
    """Scores and weights of one attention layer, computed from the queries, keys, mask and bias of its forward pass."""

    def __init__(self, attention: Attention, store: _Store, selection: _Selection, hooks: ExitStack):
        self.attention, self.store, self.selection, self.hooks = attention, store, selection, hooks
        self.names: dict[str, str] = {}  # "scores" or "weights" → the tap's full name

    def register(self) -> None:
        attention = self.attention
        self.hooks.callback(attention.register_forward_pre_hook(self._on_forward, with_kwargs=True).remove)
        self.hooks.callback(attention.q.register_forward_hook(self._on_queries).remove)
        self.hooks.callback(attention.k.register_forward_hook(self._on_keys).remove)

    def _on_forward(self, _module: nn.Module, args: Any, given: dict[str, Any]) -> None:
        self.context = _context_of(args, given)

    def _on_queries(self, _module: nn.Module, _inputs: Any, q: Tensor) -> None:
        self.q = q

    def _on_keys(self, _module: nn.Module, _inputs: Any, k: Tensor) -> None:
        if self.attention.scores.hooked or self.attention.weights.hooked:
            for part, name in self.names.items():  # the layer computes them itself, and a hook may replace them
                self._record_once(getattr(self.attention, part), name)
            return
        computed = dict(zip(COMPUTED, self._compute(self.q, k), strict=True))
        for part, name in self.names.items():
            self.store.keep(name, computed[part])

    def _record_once(self, tap: Tap, name: str) -> None:
        def hook(_module: nn.Module, _inputs: Any, value: Tensor) -> None:
            handle.remove()
            self.store.keep(name, self.selection.value(self.attention, name, value))

        handle = tap.register_forward_hook(hook)
        self.hooks.callback(handle.remove)

    @torch.no_grad()
    def _compute(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        name, heads = next(iter(self.names.values())), self.selection.heads
        rows = self.selection.rows(q.shape[2], name)
        count = take(q, heads, rows)[..., 0].numel()
        self.store.reserve(name, len(self.names) * count * k.shape[2] * q.element_size())
        return self.attention.scores_and_weights(q, k, self.context, heads=heads, rows=rows)


def _recorder(store: _Store, selection: _Selection, owner: nn.Module, name: str) -> Any:
    def hook(_module: nn.Module, _inputs: Any, value: Tensor) -> None:
        store.keep(name, selection.value(owner, name, value))

    return hook
