"""Between the event loop and the workers: waits within the deadline, notices a client that is gone, streams events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from headway.serving.api_errors import ClientGoneError, as_api_error
from headway.serving.fair_queue import FairTurns
from headway.serving.served import Served
from headway.serving.worker import END, Ticket

T = TypeVar("T")
DONE = b"data: [DONE]\n\n"


def client_of(request: Request) -> str:
    """Whose turn in the queue a request is: the key it came with, else its address."""
    return request.scope.get("headway.client") or (request.client.host if request.client else "")


@dataclass(frozen=True)
class Place:
    """Where a request stands: whose it is, and whether its body is so large that reading it has to wait for a turn."""

    turns: FairTurns
    client: str
    is_large: bool


PLACE: ContextVar[Place | None] = ContextVar("place", default=None)  # of the request that a task answers


async def in_thread(
    call: Callable[..., T], *arguments: Any, param: str | None = None, in_turn: bool = False, **options: Any
) -> T:
    """Parsing, tokenising, templates and grammars take time that the event loop does not have; for a large body, and
    with `in_turn`, in the client's turn. What is wrong with the input is named `param`."""
    place = PLACE.get()
    try:
        if place is None or not (in_turn or place.is_large):
            return await asyncio.to_thread(call, *arguments, **options)
        turn = place.turns.of(place.client)
        await turn.__aenter__()
        work = asyncio.ensure_future(_ending(turn, asyncio.to_thread(call, *arguments, **options)))
        return await asyncio.shield(work)
    except Exception as error:
        found = as_api_error(error)
        if param and found.param is None:
            found.param = param
        raise found from error


class LargeAnswer(JSONResponse):
    """JSON that is made in a thread, as `in_thread(LargeAnswer, value)`, and list by list: one call for a thousand
    vectors would keep the other threads waiting."""

    def render(self, content: Any) -> bytes:
        return "".join(_json_parts(content)).encode()


def _json_parts(value: Any) -> Iterator[str]:
    nested = isinstance(value, list) and value and isinstance(value[0], list | dict)
    if not nested and not isinstance(value, dict):
        yield json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return
    named = isinstance(value, dict)
    for number, each in enumerate(value):
        yield "," if number else "{" if named else "["
        yield from (json.dumps(each), ":") if named else ()
        yield from _json_parts(value[each] if named else each)
    yield ("}" if named else "]") if value else "{}"


async def _ending(turn: AbstractAsyncContextManager[None], work: Awaitable[T]) -> T:
    """Ends a turn with its work: a thread goes on when its request is cancelled."""
    try:
        return await work
    finally:
        await turn.__aexit__(None, None, None)


async def results(served: Served, ticket: Ticket) -> AsyncIterator[Any]:
    """The results of a ticket. Leaving early, for whatever reason, frees what it holds."""
    served.worker.submit(ticket)
    timer = ticket.expire_after(served.limits.deadline)
    try:
        while (result := await ticket.next()) is not END:
            yield result
    finally:
        timer.cancel()
        served.worker.cancel(ticket)


async def all_results(request: Request, served: Served, ticket: Ticket) -> list[Any]:
    """Every result of a ticket; raises ClientGoneError as soon as the client is gone."""

    async def collect() -> list[Any]:
        return [result async for result in results(served, ticket)]

    return await unless_gone(request, collect())


async def together(works: Iterable[Callable[[], Awaitable[T]]], *, most: int) -> list[T]:
    """The results of all calls, at most `most` of them at a time; if one fails, the others are cancelled."""
    places = asyncio.Semaphore(most)

    async def placed(work: Callable[[], Awaitable[T]]) -> T:
        async with places:
            return await work()

    tasks = [asyncio.ensure_future(placed(work)) for work in works]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGoneError
        return task.result()
    finally:
        watch.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class PendingAnswer(Protocol):
    """An answer that can be given as a whole or in parts."""

    async def whole(self) -> Any:
        """As JSON."""

    def chunks(self) -> AsyncIterator[bytes]:
        """As server-sent events."""


async def respond(
    request: Request, name: str, make: Callable[[Served], Awaitable[PendingAnswer]], *, stream: bool = False
) -> Response:
    """The answer of a model, which stays loaded until the last part is sent."""
    stack = AsyncExitStack()
    served: Served = await stack.enter_async_context(request.app.state.models.use(name))
    try:
        answer = await make(served)
        if stream:
            return await event_stream(request, _held(stack, answer.chunks()))
        async with stack:
            return JSONResponse(await unless_gone(request, answer.whole()))
    except BaseException:
        await stack.aclose()
        raise


async def _held(stack: AsyncExitStack, parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async with stack:
        try:
            async for part in parts:
                yield part
        finally:
            await parts.aclose()  # type: ignore[attr-defined]


def sse(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n\n"


async def event_stream(request: Request, parts: AsyncIterator[bytes]) -> StreamingResponse:
    """Server-sent events. The first part is awaited, so that an error before it is an ordinary response; a later error
    is an event. A client that leaves before the first part, while it waits or its prompt is read, is noticed here;
    after it, by the response."""
    first = await unless_gone(request, anext(parts, None))

    async def body() -> AsyncIterator[bytes]:
        try:
            if first is not None:
                yield first
            async for part in parts:
                yield part
        except Exception as error:
            yield sse(as_api_error(error).body())
        finally:
            await parts.aclose()  # type: ignore[attr-defined]

    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(body(), media_type="text/event-stream", headers=headers)
