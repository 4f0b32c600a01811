"""Answering many inputs by several processes: each works out some of the batches, and all hear the rest.

A batch is made up as one process makes it up, and what comes of the batches is joined in their order: the scores of
many processes are those of one to the last bit, whatever the score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from headway.errors import HeadwayError

Part = TypeVar("Part")
Found = TypeVar("Found")


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
    """While inside, `shared` work is spread over `ranks`, all of which must come here with the same parts."""
    token = _ranks.set(ranks)
    try:
        yield
    finally:
        _ranks.reset(token)


def world_size() -> int:
    """How many parts are worked out side by side."""
    ranks = _ranks.get()
    return 1 if ranks is None else ranks.size


def distributed_map(parts: Sequence[Part], work: Callable[[Part], Found]) -> Iterator[tuple[Part, Found]]:
    """Each part with what `work` makes of it, in order. What it makes is not on a device, so that it can be sent.

    A part is one rank's alone: what `work` itself shares is not spread.
    """
    ranks = _ranks.get()
    if ranks is None or ranks.size == 1:
        for part in parts:
            yield part, work(part)
        return
    own: list[Found] = []
    problem: HeadwayError | None = None
    token = _ranks.set(None)
    try:
        own += [work(part) for part in parts[ranks.rank :: ranks.size]]
    except HeadwayError as error:
        problem = error
    finally:
        _ranks.reset(token)
    told = ranks.all_gather((own, problem and str(problem)))
    for _, reason in told:
        if reason is not None:
            raise problem or HeadwayError(reason)
    for index, part in enumerate(parts):
        yield part, told[index % ranks.size][0][index // ranks.size]
