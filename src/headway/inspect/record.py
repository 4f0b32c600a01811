"""`with record(model, "decoder.*.cross.weights") as seen:` – the values that pass the named taps.

The pass stays on the fast kernel. Scores and weights, which that kernel never has as a whole, are worked out beside it
from the queries and keys that went in, for the layers, heads and queries asked for and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.parts import Names, choose, must_have_fired, taps_of, unique
from headway.layers.attend import NO_MASK, attention_weights
from headway.layers.attention import Attention
from headway.layers.masks import CAUSAL, Mask
from headway.layers.recurrent import AdditiveAttention
from headway.layers.tap import Tap

LIMIT = 2 * 1024**3  # bytes
BESIDE = ("scores", "weights")
Seen = dict[str, list[Tensor]]


@contextmanager
def record(
    model: nn.Module,
    names: Names,  # tap names or patterns
    *,
    heads: Sequence[int] | None = None,  # None: all
    queries: Sequence[int] | None = None,  # positions that look; -1 is the last; None: all
    limit: int = LIMIT,  # bytes that may be kept
) -> Iterator[Seen]:
    """Maps each tap that fires to its values, one for each pass. `heads` and `queries` narrow what passes an
    attention's taps: scores, weights, q and z by both, k and v by the heads they serve. The hooks are gone on exit,
    also after an error; a name of which nothing was heard by then is an error."""
    taps = taps_of(model)
    chosen = choose(names, taps, kind="tap")
    narrow = _Narrow(heads, queries)
    store = _Store(limit)
    with ExitStack() as hooks:
        beside: dict[str, _Beside] = {}
        for name in unique(chosen):
            path, _, part = name.rpartition(".")
            owner = model.get_submodule(path)
            narrow.check(owner, name)
            if isinstance(owner, Attention) and part in BESIDE:
                beside.setdefault(path, _Beside(owner, store, narrow, hooks)).wanted[part] = name
            else:
                hooks.callback(taps[name].register_forward_hook(_listener(store, narrow, owner, name)).remove)
        if (heads is not None or queries is not None) and not narrow.used:
            raise InputError(f"heads= and queries= narrow an attention's taps, and {names!r} names none")
        for each in beside.values():
            each.listen()
        yield store.seen
    must_have_fired(chosen, store.seen, taps)


class _Store:
    """What was heard, within its limit."""

    def __init__(self, limit: int):
        self.seen: Seen = {}
        self.limit, self.kept = limit, 0

    def reserve(self, name: str, size: int) -> None:
        """Asked before memory is taken for a value that has to be worked out."""
        if self.kept + size > self.limit:
            raise InputError(
                f"recording {name} takes {size:,} bytes beside {self.kept:,} kept already, over limit={self.limit:,}: "
                "ask for fewer taps, name heads= or queries=, or raise the limit"
            )

    def keep(self, name: str, value: Tensor) -> None:
        self.reserve(name, value.nbytes)
        self.kept += value.nbytes
        value = value.detach()
        if value.untyped_storage().nbytes() > value.nbytes:  # a view of what may be written over, such as a cache
            value = value.clone()
        self.seen.setdefault(name, []).append(value)


class _Narrow:
    """The heads and queries asked for, each once."""

    def __init__(self, heads: Sequence[int] | None, queries: Sequence[int] | None):
        self.heads = None if heads is None else list(dict.fromkeys(heads))
        self.queries = queries
        self.used = False

    def check(self, owner: nn.Module, name: str) -> None:
        if not isinstance(owner, Attention | AdditiveAttention):
            return
        self.used = True
        count = owner.heads if isinstance(owner, Attention) else 1
        for head in self.heads or ():
            if not 0 <= head < count:
                raise InputError(f"heads: {name} has heads 0 to {count - 1}, not {head}")

    def rows(self, length: int, name: str) -> list[int] | None:
        """The queries counted from the first; None: all of them."""
        if self.queries is None:
            return None
        for at in self.queries:
            if not -length <= at < length:
                raise InputError(f"queries: {name} has {length} of them, so {at} is not there")
        return list(dict.fromkeys(at % length for at in self.queries))

    def served(self, owner: Attention) -> list[int] | None:
        """The key/value head of each head."""
        return None if self.heads is None else [head * owner.kv_heads // owner.heads for head in self.heads]

    def value(self, owner: nn.Module, name: str, value: Tensor) -> Tensor:
        """A tap's value, as far as it was asked for."""
        if isinstance(owner, Attention) and name.endswith((".k", ".v")):
            return _take(value, self.served(owner), None)
        if isinstance(owner, Attention | AdditiveAttention):
            return _take(value, self.heads, self.rows(value.shape[2], name))
        return value


class _Beside:
    """Scores and weights of one attention layer, from what it attends with."""

    def __init__(self, attention: Attention, store: _Store, narrow: _Narrow, hooks: ExitStack):
        self.attention, self.store, self.narrow, self.hooks = attention, store, narrow, hooks
        self.wanted: dict[str, str] = {}  # "scores" or "weights" → the tap's full name

    def listen(self) -> None:
        attention = self.attention
        self.hooks.callback(attention.register_forward_pre_hook(self._begin, with_kwargs=True).remove)
        self.hooks.callback(attention.q.register_forward_hook(self._hear_queries).remove)
        self.hooks.callback(attention.k.register_forward_hook(self._hear_keys).remove)

    def _begin(self, _module: nn.Module, _args: Any, given: dict[str, Any]) -> None:
        self.mask: Mask = given.get("mask", NO_MASK)
        self.bias: Tensor | None = given.get("bias")

    def _hear_queries(self, _module: nn.Module, _inputs: Any, q: Tensor) -> None:
        self.q = q

    def _hear_keys(self, _module: nn.Module, _inputs: Any, k: Tensor) -> None:
        if self.attention.scores.listening or self.attention.weights.listening:
            for part, name in self.wanted.items():  # they may be replaced: what passes the tap is what counts
                self._listen_once(getattr(self.attention, part), name)
            return
        found = dict(zip(BESIDE, self._work_out(self.q, k), strict=True))
        for part, name in self.wanted.items():
            self.store.keep(name, found[part])

    def _listen_once(self, tap: Tap, name: str) -> None:
        def listen(_module: nn.Module, _inputs: Any, value: Tensor) -> None:
            handle.remove()
            self.store.keep(name, self.narrow.value(self.attention, name, value))

        handle = tap.register_forward_hook(listen)
        self.hooks.callback(handle.remove)

    @torch.no_grad()
    def _work_out(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        name, heads, scale = next(iter(self.wanted.values())), self.narrow.heads, self.attention.config.scale
        queries, keys = q.shape[2], k.shape[2]
        rows = self.narrow.rows(queries, name)
        q, k = _take(q, heads, rows), _take(k, self.narrow.served(self.attention), None)
        self.store.reserve(name, len(self.wanted) * q[..., 0].numel() * keys * q.element_size())
        bias = None if self.bias is None else _take(self.bias, heads, rows)
        mask = Mask(None if self.mask.allowed is None else _take(self.mask.allowed, heads, rows))
        if self.mask.causal:
            mask = mask & (CAUSAL if rows is None else _triangle(rows, queries=queries, keys=keys, device=q.device))
        return attention_weights(q, k, mask=mask, bias=bias, scale=scale)


def _triangle(rows: list[int], *, queries: int, keys: int, device: torch.device) -> Mask:
    """These rows of the causal triangle, whose last query is the last key."""
    last = torch.tensor(rows, device=device)[:, None] + keys - queries
    return Mask(torch.arange(keys, device=device) <= last)  # (row, key)


def _take(x: Tensor, heads: list[int] | None, rows: list[int] | None) -> Tensor:
    """Some heads and queries of what broadcasts to (batch, head, query, any). A size of one, for all, stays."""
    if heads is not None and x.ndim > 2 and x.shape[-3] > 1:
        x = x[..., heads, :, :]
    return x if rows is None or x.shape[-2] == 1 else x[..., rows, :]


def _listener(store: _Store, narrow: _Narrow, owner: nn.Module, name: str) -> Any:
    def listen(_module: nn.Module, _inputs: Any, value: Tensor) -> None:
        store.keep(name, narrow.value(owner, name, value))

    return listen
