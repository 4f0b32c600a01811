"""Requests to one language model whose steps a test slows down or holds."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from support.server import Running

MODEL = "language_model"
TEXT = "/v1/completions"


def body(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": "The import", "max_tokens": 20, "temperature": 0, **fields}


def worker(server: Running) -> Any:
    return server.server.models.find(MODEL).served.worker


def until(condition: Callable[[], bool], *, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


@contextlib.contextmanager
def gated(server: Running) -> Iterator[threading.Event]:
    """The model's steps wait for the event."""
    gate, session = threading.Event(), worker(server).session
    step = session.step

    def waiting() -> Any:
        assert gate.wait(30)
        return step()

    session.step = waiting
    try:
        yield gate
    finally:
        gate.set()
        session.step = step


@contextlib.contextmanager
def slowed(server: Running, seconds: float) -> Iterator[None]:
    session = worker(server).session
    step = session.step

    def slow() -> Any:
        time.sleep(seconds)
        return step()

    session.step = slow
    try:
        yield
    finally:
        session.step = step


def send(server: Running, fields: dict[str, Any]) -> socket.socket:
    """A request whose response nobody reads yet."""
    data = json.dumps(fields).encode()
    kind = f"Content-Type: application/json\r\nContent-Length: {len(data)}"
    head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\n{kind}\r\n\r\n"
    out = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    out.sendall(head.encode() + data)
    return out
