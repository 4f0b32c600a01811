"""Batches of a prediction divided among processes.

Every process forms the same batches as one process would, and the results are joined in order: the scores of many
processes equal those of one to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar, cast

from headway.data.length_batches import BatchLimits, by_length
from headway.errors import HeadwayError

Item = TypeVar("Item")
Result = TypeVar("Result")


class Ranks(Protocol):
    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def all_gather(self, value: Any) -> list[Any]:
        """Every rank's value, in order of rank."""


_ranks: ContextVar[Ranks | None] = ContextVar("ranks", default=None)


@contextmanager
def use_ranks(ranks: Ranks) -> Iterator[None]:
    """While inside, `distributed_map` divides its items among `ranks`. Every rank must call it with the same items."""
    token = _ranks.set(ranks)
    try:
        yield
    finally:
        _ranks.reset(token)


def world_size() -> int:
    ranks = _ranks.get()
    return 1 if ranks is None else ranks.size


def is_first_rank() -> bool:
    """Whether this process writes what is written once."""
    ranks = _ranks.get()
    return ranks is None or ranks.rank == 0


def distributed_map(items: Sequence[Item], work: Callable[[Item], Result]) -> Iterator[tuple[Item, Result]]:
    """Yields each item with `work(item)`, in order. Results are sent between processes, so they must be on the CPU.

    One rank works on one item: a `distributed_map` inside `work` is not divided again.
    """
    ranks = _ranks.get()
    if ranks is None or ranks.size == 1:
        for item in items:
            yield item, work(item)
        return
    own: list[Result] = []
    problem: HeadwayError | None = None
    token = _ranks.set(None)
    try:
        own += [work(item) for item in items[ranks.rank :: ranks.size]]
    except HeadwayError as error:
        problem = error
    finally:
        _ranks.reset(token)
    gathered = ranks.all_gather((own, problem and str(problem)))
    for _, reason in gathered:
        if reason is not None:
            raise problem or HeadwayError(reason)
    for index, item in enumerate(items):
        yield item, gathered[index % ranks.size][0][index // ranks.size]


def map_by_length(
    items: Sequence[Item],
    work: Callable[[list[Item]], Sequence[Result]],
    *,
    length: Callable[[Item], int],
    size: int,
    tokens: int | None = None,
) -> list[Result]:
    """`work` on batches of up to `size` items (and `tokens`, with padding) of similar length, divided among processes;
    results in item order."""
    batches = by_length([length(item) for item in items], BatchLimits(rows=size, padded_tokens=tokens))
    out = cast(list[Result], [None] * len(items))
    for batch, results in distributed_map(batches, lambda batch: work([items[i] for i in batch])):
        for index, result in zip(batch, results, strict=True):
            out[index] = result
    return out


def chunks(items: Sequence[Item], size: int) -> list[Sequence[Item]]:
    return [items[start : start + size] for start in range(0, len(items), size)]
