"""A queue and turns for clients, so that one client's many requests do not delay another's only one."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

T = TypeVar("T")


class FairQueue(Generic[T]):
    """First in, first out for each client; the clients in turns. Not thread-safe."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, deque[T]] = OrderedDict()  # the client whose turn it is first
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        return (item for items in self._items.values() for item in items)

    def add(self, client: str, item: T) -> None:
        self._items.setdefault(client, deque()).append(item)
        self._count += 1

    def peek(self) -> T:
        """What `take` would return."""
        return next(iter(self._items.values()))[0]

    def take(self) -> T:
        client, items = next(iter(self._items.items()))
        item = items.popleft()
        self._count -= 1
        del self._items[client]
        if items:
            self._items[client] = items  # behind the others
        return item

    def remove(self, item: T) -> bool:
        """Whether it was there."""
        for client, items in self._items.items():
            if item in items:
                items.remove(item)
                self._count -= 1
                if not items:
                    del self._items[client]
                return True
        return False


class FairTurns:
    """At most `most` at a time, one of them of a client: each client waits for its own turn first, and has at most one
    request among those that wait for a place."""

    def __init__(self, most: int) -> None:
        self._places = asyncio.Semaphore(most)
        self._clients: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, client: str) -> AsyncIterator[None]:
        async with self._clients.setdefault(client, asyncio.Lock()), self._places:
            yield
