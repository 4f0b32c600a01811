"""The process: uvicorn with bounds on connections, shutdown that lets requests finish."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headway.errors import ConfigError
from headway.serving.app import create_app
from headway.serving.limits import ServerLimits
from headway.serving.metrics import Metrics
from headway.serving.model_table import ModelTable
from headway.serving.runs_table import RunTable
from headway.serving.vllm_engine import add_routes as vllm_routes
from headway.serving.vllm_engine import engines_of

log = logging.getLogger("headway.serving")
MIN_KEY = 16  # characters
FREE_PARTS = 1000  # of a body, of any size
ARRIVING = 1.0  # seconds in which the request of a new connection is on its way: many may come at once


class BoundedConnection(h11.Connection):
    """Refuses a body in millions of chunks, each of which takes as long as a large one."""

    _parts = _bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._parts, self._bytes = self._parts + 1, self._bytes + len(event.data)
            if self._bytes < (self._parts - FREE_PARTS) * ServerLimits.part_bytes:
                raise h11.RemoteProtocolError("the body arrives in too small parts")
        elif isinstance(event, h11.Request):
            self._parts = self._bytes = 0
        return event


class TimedProtocol(H11Protocol):
    """Closes a connection whose next request does not arrive completely in time (slow-loris). `timeout_keep_alive` is
    not enough: it ends with the first byte of a request, and does not begin before the first response. Of the
    connections that wait for a request, the one that has waited longest is closed when an address has too many."""

    limits = ServerLimits()
    waiting: ClassVar[dict[str, dict[TimedProtocol, float]]] = {}  # by address, since when, the longest first
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.conn = BoundedConnection(h11.SERVER, self.limits.header_bytes)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._arm()
        self._wait()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:  # the head is complete
            self._disarm()
            self._stop_waiting()
        elif self._timer is None:
            self._arm()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self in self.connections and self.cycle.response_complete:  # not of a next request that was there already
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def _wait(self) -> None:
        own = self.waiting.setdefault(self._address, {})
        own[self] = now = self.loop.time()
        while len(own) > self.limits.idle_connections and now - next(iter(own.values())) > ARRIVING:
            self._close_longest(own)
        if sum(map(len, self.waiting.values())) > self.limits.connections:
            self._close_longest(max(self.waiting.values(), key=len))

    def _close_longest(self, own: dict[TimedProtocol, float]) -> None:
        longest = next(iter(own))
        longest._stop_waiting()
        longest.transport.abort()

    def _stop_waiting(self) -> None:
        own = self.waiting.get(self._address, {})
        own.pop(self, None)
        if not own:
            self.waiting.pop(self._address, None)

    def _arm(self) -> None:
        self._timer = self.loop.call_later(self.limits.header_seconds, self._expire)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self.conn.their_state is h11.IDLE and (self.cycle is None or self.cycle.response_complete):
            self.transport.abort()


class Server:
    """A server with its models loaded and its port bound; `run` serves until SIGTERM or SIGINT."""

    def __init__(
        self,
        models: Iterable[str],
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        keys: Sequence[str] = (),
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
        limits: ServerLimits | None = None,
        memory: int | None = None,
        weights: str | None = None,
        device: str = "cpu",
        prefix_cache: bool = True,
        engine: str = "headway",
        runs: RunTable | None = None,
    ) -> None:
        self.limits, self.runs = limits or ServerLimits(), runs
        self._uvicorn: _Uvicorn | None = None
        check_exposure(host, keys)
        self.socket = bind(host, port)  # before loading: a port that is taken is found at once
        try:
            self.metrics = Metrics()
            if engine == "vllm":
                self.models: Any = engines_of(list(models), limits=self.limits, metrics=self.metrics)
                self._create_app(keys, hosts, origins, host=host, vllm=True)
                return
            self.models = ModelTable(
                models, limits=self.limits, metrics=self.metrics, memory=memory, weights=weights, device=device,
                prefix_cache=prefix_cache, may_be_empty=runs is not None,
            )  # fmt: skip
            self.models.load_now()
        except BaseException:
            self.socket.close()
            raise
        self._create_app(keys, hosts, origins, host=host)

    def _create_app(
        self, keys: Sequence[str], hosts: Iterable[str], origins: Iterable[str], *, host: str, vllm: bool = False
    ) -> None:
        names = {host, socket.gethostname()} if keys else set()
        self.app = create_app(
            self.models,
            limits=self.limits,
            metrics=self.metrics,
            keys=keys,
            hosts={*hosts, *names},
            origins=origins,
            runs=self.runs,
            add_routes=vllm_routes if vllm else None,
        )

    @property
    def port(self) -> int:
        return self.socket.getsockname()[1]

    @property
    def url(self) -> str:
        host = self.socket.getsockname()[0]
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    def run(self, *, ready: Callable[[], None] | None = None) -> None:
        self._uvicorn = _Uvicorn(self._config(), self, ready)
        try:
            self._uvicorn.run(sockets=[self.socket])
        finally:
            self.models.close()
            self.models.join(5.0)
            self.socket.close()

    def stop(self) -> None:
        """As SIGTERM, from another thread: no new requests, and running ones finish."""
        self.app.state.stopping = True
        self.models.close()
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    def _config(self) -> uvicorn.Config:
        limits = self.limits
        protocol = type("Protocol", (TimedProtocol,), {"limits": limits, "waiting": {}})
        return uvicorn.Config(
            self.app,
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=limits.keep_alive,
            timeout_graceful_shutdown=round(limits.drain),
            h11_max_incomplete_event_size=limits.header_bytes,
            backlog=min(limits.connections, 2048),
        )


class _Uvicorn(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, owner: Server, ready: Callable[[], None] | None) -> None:
        super().__init__(config)
        self._owner, self._ready = owner, ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._ready is not None:
            self._ready()

    def handle_exit(self, sig: int, frame: Any) -> None:
        """The first signal drains: no new requests, running ones finish, and the exit code is 0. The second ends at
        once."""
        if self.should_exit:
            self.force_exit = True
        else:
            self._owner.stop()


def check_exposure(host: str, keys: Sequence[str]) -> None:
    """Raises unless the server is on the loopback interface, or has a key."""
    short = next((key for key in keys if len(key) < MIN_KEY or not key.isascii() or not key.isprintable()), None)
    if short is not None:
        raise ConfigError(f"a key has {len(short)} characters; it needs {MIN_KEY} or more, printable ASCII")
    if not keys and not is_loopback(host):
        raise ConfigError(
            f"--host {host} is reachable from other machines, so it needs a key: set --key-file, or HEADWAY_KEY"
        )


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it a stream's first part comes 40 ms late
    found = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
    except OSError as error:
        found.close()
        raise ConfigError(f"--host {host} --port {port}: {error.strerror or error}") from error
    return found
