"""What a model must be able to do to write (step), and how it reads prompts: with little padding, and a
long one in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

PART = 512  # tokens of a prompt that are read at once


class Cache(Protocol):
    def select(self, rows: Sequence[int]) -> None: ...


class Model(Protocol):
    config: Any
    training: bool

    def parameters(self) -> Iterator[nn.Parameter]: ...

    reads_source: bool
    rotary_depends_on_length: bool

    def step(self, ids: Tensor, cache: Any, *, lengths: Any = None, every: bool = False) -> Tensor: ...


@runtime_checkable
class Continues(Protocol):
    """Writes on from a prompt."""

    def new_cache(self, rows: int, *, capacity: int = 0) -> Cache: ...


@runtime_checkable
class Answers(Protocol):
    """Reads a source first."""

    def encode_to_cache(self, inputs: Tensor, *, padding_mask: Tensor | None = None, capacity: int = 0) -> Cache: ...


def read(model: Model, rows: Sequence[Sequence[int]], cache: Any) -> Tensor:
    """Appends prompts to the cache's rows, a long one in parts; the logits after the last token (row, vocab)."""
    device = next(model.parameters()).device
    longest = max(map(len, rows))
    part = longest if model.reads_source or model.rotary_depends_on_length else PART
    for begin in range(0, longest, part):
        here = [row[begin : begin + part] for row in rows]
        new = max(map(len, here))
        ids = torch.tensor([[*row, *[0] * (new - len(row))] for row in here], device=device)
        logits = model.step(ids, cache, lengths=[len(row) for row in here])
    return logits.float()


def read_apart(model: Any, rows: Sequence[Sequence[int]], *, capacity: int) -> tuple[Any, Tensor]:
    """A cache with the prompts of all rows, each read by itself, and the logits after each."""
    cache, found = None, []
    for row in rows:
        fresh = model.new_cache(1, capacity=capacity)
        found.append(read(model, [row], fresh))
        if cache is None:
            cache = fresh
        else:
            cache.append_rows(fresh)
    return cache, torch.cat(found)
