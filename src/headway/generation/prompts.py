"""What a model must be able to do to write (step), and how it reads prompts: with little padding, and a
long one in parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from headway.generation.prompt_lookup import turns_by_length

PART = 512  # tokens of a prompt that are read at once
PADDING = 0.25  # of the tokens of a group


class Cache(Protocol):
    def select(self, rows: Tensor) -> None: ...


@runtime_checkable
class Joins(Protocol):
    """A cache that takes over what was read apart."""

    length: int

    def join(self, parts: Any, mask: Tensor) -> None: ...


class Model(Protocol):
    config: Any
    training: bool

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def step(self, ids: Tensor, cache: Any, *, mask: Tensor | None = None) -> Tensor: ...


@runtime_checkable
class Continues(Protocol):
    """Writes on from a prompt."""

    def new_cache(self, *, capacity: int = 0) -> Cache: ...


@runtime_checkable
class Answers(Protocol):
    """Reads a source first."""

    def start(self, ids: Tensor, *, mask: Tensor | None = None, capacity: int = 0) -> Cache: ...


def read(model: Model, ids: Tensor, cache: Any, *, mask: Tensor | None) -> Tensor:
    """The scores after the last token (row, vocab). Prompts of very different lengths are read apart, if all of each is
    still to be read."""
    if mask is None or not isinstance(model, Continues) or not isinstance(cache, Joins) or cache.length:
        return read_on(model, ids, cache, mask=mask)
    groups = alike(mask.sum(1).tolist())
    if len(groups) == 1:
        return read_on(model, ids, cache, mask=mask)
    parts, found = [], []
    for rows, longest in groups:
        chosen, part = torch.tensor(rows, device=ids.device), model.new_cache()
        here = mask[chosen, -longest:]
        found.append(read_on(model, ids[chosen, -longest:], part, mask=None if bool(here.all()) else here))
        parts.append((chosen, part))
    cache.join(parts, mask.bool())
    return torch.cat(found)[torch.cat([rows for rows, _ in parts]).argsort()]


def alike(lengths: Sequence[int]) -> list[tuple[list[int], int]]:
    """Rows in groups, the longest first, each with its longest length; a group takes no more padding than it may."""
    groups: list[tuple[list[int], int]] = []
    tokens = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        tokens += lengths[row]
        if not groups or groups[-1][1] * (len(groups[-1][0]) + 1) > (1 + PADDING) * tokens:
            groups.append(([], lengths[row]))
            tokens = lengths[row]
        groups[-1][0].append(row)
    return groups


def read_on(model: Model, ids: Tensor, cache: Any, *, mask: Tensor | None) -> Tensor:
    """A long prompt is read part by part: what it takes beside its keys and values does not grow with it."""
    length = ids.shape[1]
    part = length if length <= PART or turns_by_length(model) else PART
    for begin in range(0, length, part):
        here = slice(begin, begin + part)
        logits = model.step(ids[:, here], cache, mask=None if mask is None else mask[:, here])
    return logits.float()
