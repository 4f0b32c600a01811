"""The thread that runs one model: requests are admitted from a fair queue, may be cancelled at any time, and never wait
for a slow client."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headway.engine.thread_pool import release_threads
from headway.serving.api_errors import ApiError, as_api_error
from headway.serving.fair_queue import FairQueue
from headway.serving.limits import ServerLimits
from headway.serving.metrics import ModelMetrics
from headway.serving.turns import Turns

log = logging.getLogger("headway.serving")
END = object()  # after the last result of a ticket


def characters(value: Any) -> int:
    """Of all texts in an input."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        value = value.values()
    return sum(map(characters, value)) if isinstance(value, Iterable) and not isinstance(value, bytes) else 0


class Ticket:
    """One request at a worker. The worker's thread puts results; the event loop that made the ticket awaits them."""

    def __init__(self, *, client: str = "", rows: int = 1) -> None:
        self.client, self.rows = client, rows
        self.arrived = time.monotonic()
        self.started: float | None = None
        self.cancelled = False
        self._loop = asyncio.get_running_loop()
        self._results: asyncio.Queue[Any] = asyncio.Queue()

    def put(self, *results: Any) -> None:
        """From any thread. A loop that has ended (a server that is shut down) takes no results."""
        try:
            self._loop.call_soon_threadsafe(self._put, results)
        except RuntimeError:
            self.cancelled = True

    def _put(self, results: Sequence[Any]) -> None:
        for result in results:
            self._results.put_nowait(result)

    def expire_after(self, seconds: float) -> asyncio.TimerHandle:
        """Ends the request with an error unless the timer is cancelled before."""
        error = ApiError(504, f"the answer took longer than the limit of {seconds:g} s")
        return self._loop.call_later(seconds, self._put, [error])

    def abandon(self) -> None:
        """Called when it is about to be dropped, while the thread may be at work on it."""

    async def next(self) -> Any:
        """The next result, or END; raises the ApiError that ended the request."""
        result = await self._results.get()
        if isinstance(result, Exception):
            raise as_api_error(result)
        return result


class CallTicket(Ticket):
    """Result: what `call` returns, in the worker's thread and turn: for what has the model to itself."""

    def __init__(self, call: Callable[[], Any], *, client: str = "") -> None:
        super().__init__(client=client)
        self.call = call


class Worker(ABC):
    """`_waiting`, `_active` and `_cancelled` are guarded by `_condition`; everything else belongs to the thread."""

    capacity: int  # rows that are worked on at a time

    def __init__(self, name: str, *, turns: Turns, limits: ServerLimits, metrics: ModelMetrics) -> None:
        self.name, self.turns, self.limits, self.metrics = name, turns, limits, metrics
        self.capacity = limits.running
        self.failing: str | None = None  # why the last forward passes failed, if they did
        self._condition = threading.Condition()
        self._waiting: FairQueue[Ticket] = FairQueue()
        self._active: set[Ticket] = set()
        self._cancelled: list[Ticket] = []
        self._calls: deque[CallTicket] = deque()
        self._closed = False
        self._seconds = 1.0  # that a request takes, on average
        self._thread = threading.Thread(target=self._run, name=f"serve {name}", daemon=True)
        self._thread.start()

    # --- called by the event loop

    def submit(self, ticket: Ticket) -> None:
        with self._condition:
            if self._closed:
                raise ApiError(503, "the server is shutting down", headers={"Retry-After": "5"})
            held = len(self._waiting) + len(self._active)
            if held >= self.capacity + self.limits.queue:
                seconds = max(1, round(self._seconds * held / self.capacity))
                raise ApiError(
                    429,
                    f"{self.name}: {len(self._active)} requests are running and {len(self._waiting)} are waiting, "
                    f"which is the limit; try again in about {seconds} s",
                    headers={"Retry-After": str(seconds)},
                )
            self._waiting.add(ticket.client, ticket)
            self.metrics.waiting.set(len(self._waiting))
            self._condition.notify()

    def cancel(self, ticket: Ticket) -> None:
        """Frees what the ticket holds, after the forward pass that runs; a pass that reads only its prompt ends early.
        A finished ticket is left as it is."""
        with self._condition:
            ticket.cancelled = True
            if self._waiting.remove(ticket):
                self.metrics.waiting.set(len(self._waiting))
                self.metrics.finished("cancelled")
            elif ticket in self._active:
                self._cancelled.append(ticket)
                ticket.abandon()
                self._condition.notify()

    @property
    def busy(self) -> bool:
        with self._condition:
            return bool(self._waiting or self._active)

    @property
    def counts(self) -> tuple[int, int]:
        """(running, waiting)"""
        with self._condition:
            return len(self._active), len(self._waiting)

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def close(self) -> None:
        """No further requests; the thread ends after the last one."""
        with self._condition:
            self._closed = True
            self._condition.notify()

    def join(self, seconds: float) -> bool:
        """Whether the thread has ended within this time."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # --- the thread

    def _run(self) -> None:
        while True:
            with self._condition:
                while not (self._closed or self._waiting or self._cancelled or self._calls or self.has_work()):
                    release_threads()  # another model's worker may be next
                    self._condition.wait()
                if self._closed and not (self._waiting or self._active):
                    return
                self.gather()
                cancelled, self._cancelled = self._cancelled, []
                admitted = self._admit()
            try:
                for ticket in cancelled:
                    if ticket in self._calls:
                        self._calls.remove(ticket)  # type: ignore[arg-type]
                    self.drop(ticket)
                    self.finish(ticket, "cancelled")
                for ticket in admitted:
                    ticket.started = time.monotonic()
                    self.metrics.queue_seconds.observe(ticket.started - ticket.arrived)
                    self._start(ticket)
                if self._calls:
                    with self.turns:
                        self._call(self._calls.popleft())
                if self.has_work():
                    with self.turns:
                        self.work()
            except Exception as error:
                log.exception("%s: the worker failed", self.name)
                self.failing = f"{type(error).__name__}: {error}"
                self.fail_all(error)

    def _admit(self) -> list[Ticket]:
        out: list[Ticket] = []
        free = self.free_rows()
        while self._waiting and self.admits() and (self._waiting.peek().rows <= free or not (self._active or out)):
            ticket = self._waiting.take()
            free -= ticket.rows
            self._active.add(ticket)
            out.append(ticket)
        self.metrics.waiting.set(len(self._waiting))
        self.metrics.running.set(len(self._active))
        return out

    def _start(self, ticket: Ticket) -> None:
        if isinstance(ticket, CallTicket):
            self._calls.append(ticket)
            return
        try:
            self.start(ticket)
        except Exception as error:
            self.fail(ticket, error)

    def _call(self, ticket: CallTicket) -> None:
        try:
            ticket.put(ticket.call())
            self.finish(ticket, "ok")
        except Exception as error:
            self.fail(ticket, error)

    def finish(self, ticket: Ticket, outcome: str) -> None:
        """Ends an active ticket."""
        with self._condition:
            if ticket not in self._active:
                return
            self._active.remove(ticket)
            self.metrics.running.set(len(self._active))
            seconds = time.monotonic() - (ticket.started or ticket.arrived)
            self._seconds += 0.1 * (seconds - self._seconds)
        self.metrics.finished(outcome)
        ticket.put(END)

    def fail(self, ticket: Ticket, error: Exception) -> None:
        if as_api_error(error).status_code >= 500:
            log.error("%s: a request failed", self.name, exc_info=error)
        ticket.put(error)
        self.finish(ticket, "error")

    def fail_all(self, error: Exception) -> None:
        with self._condition:
            active = list(self._active)
        for ticket in active:
            self.fail(ticket, error)

    # --- what differs

    def gather(self) -> None:
        """May wait a moment for requests that are better begun together; called with the condition held."""
        return

    def free_rows(self) -> int:
        return self.capacity - sum(ticket.rows for ticket in self._active)

    def admits(self) -> bool:
        """Whether new tickets may be started."""
        return True

    @abstractmethod
    def has_work(self) -> bool: ...

    @abstractmethod
    def start(self, ticket: Ticket) -> None:
        """Begins an admitted ticket."""

    @abstractmethod
    def drop(self, ticket: Ticket) -> None:
        """Forgets a cancelled ticket."""

    @abstractmethod
    def work(self) -> None:
        """One forward pass, or a few; called in this worker's turn."""
