"""A real server on a loopback port, in a thread of the test's process."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import typer

from headway.cli import app
from headway.serving.server import Server

SMALL = {"vocab": 300}
TASKS: dict[str, dict[str, Any]] = {  # a small untrained model each: `untrained.of_task(task, folder, **options)`
    "chat": SMALL,
    "summarize": {**SMALL, "target_limit": 12},
    "classify": SMALL,
    "tag": SMALL,
    "answer": SMALL,
    "fill": SMALL,
    "classify-image": {},
    "transcribe": {**SMALL, "target_limit": 12},
    "draw": SMALL,
}


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json()["error"]


@dataclass(frozen=True)
class Running:
    server: Server

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    def connection(self, *, timeout: float = 60) -> HTTPConnection:
        return HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def open(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[HTTPConnection, HTTPResponse]:
        """The response with its body unread."""
        connection = self.connection()
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if data is not None and not isinstance(body, bytes):
            named.setdefault("Content-Type", "application/json")
        connection.request(method, path, data, named)
        return connection, connection.getresponse()

    def statuses(self, requests: Iterable[tuple[str, str]], **headers: str) -> list[int]:
        """Of requests (method, path) without a body, on one connection."""
        named, found = {name.replace("_", "-"): value for name, value in headers.items()}, list[int]()
        with contextlib.closing(self.connection()) as connection:
            for method, path in requests:
                connection.request(method, path, headers=named)
                response = connection.getresponse()
                response.read()
                found.append(response.status)
        return found

    def request(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        connection, response = self.open(method, path, body, **headers)
        with contextlib.closing(connection):
            names = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, names, response.read())

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return self.request("POST", path, body, **headers)

    def get(self, path: str, **headers: str) -> Reply:
        return self.request("GET", path, **headers)

    def stream(self, path: str, body: Any) -> list[Any]:
        """The events of a streamed answer, without the last one, [DONE]."""
        reply = self.post(path, {**body, "stream": True})
        assert reply.status == 200, reply.body
        lines = [line for line in reply.body.decode().split("\n\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def options(command: str = "serve") -> set[str]:
    """The options of a command, as they are written."""
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    return {option for parameter in commands[command].params for option in (*parameter.opts, *parameter.secondary_opts)}


@contextlib.contextmanager
def running(*models: Path | str, **options: Any) -> Iterator[Running]:
    server = Server(list(map(str, models)), port=0, **options)
    ready = threading.Event()
    thread = threading.Thread(target=lambda: server.run(ready=ready.set), daemon=True)
    thread.start()
    assert ready.wait(30), "the server did not start"
    try:
        yield Running(server)
    finally:
        server.stop()
        thread.join(30)
        assert not thread.is_alive(), "the server did not stop"
