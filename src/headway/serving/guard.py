"""What every request must pass before a route sees it, on every path and method: Host, Origin, key, size and time.

A page on the internet can make a browser send requests to a server on this machine. The Host header shows a name that
was rebound to this machine; the Origin header shows a page that is not this server's.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import json
import logging
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.memory import return_garbage
from headway.serving.api_errors import ApiError, ClientGoneError, as_api_error
from headway.serving.exchange import PLACE, Place
from headway.serving.fair_queue import FairTurns
from headway.serving.limits import ServerLimits
from headway.serving.metrics import Metrics

log = logging.getLogger("headway.serving")
LOCAL = ("localhost", "127.0.0.1", "[::1]")
HEALTH = "/health"  # needs no key: orchestrators and load balancers ask it
PROBES = (HEALTH, "/metrics")  # are answered however many requests there are
FORM, JSON = b"application/x-www-form-urlencoded", b"application/json"
MEDIA = ("/models/", "/v1/audio/", "/studio/data/")  # paths that take pictures, sound and data files
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; media-src 'self' blob:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-frame-options": b"DENY",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}


@dataclass
class Share:
    """What one request holds."""

    client: str  # its key, else its address
    bytes: int = 0


class Guard:
    """ASGI middleware, the outermost."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: ServerLimits,
        metrics: Metrics,
        keys: Iterable[str] = (),
        hosts: Iterable[str] = (),
        origins: Iterable[str] = (),
    ) -> None:
        self.app, self.limits, self.metrics = app, limits, metrics
        self.keys = [key.encode() for key in keys]
        self.hosts = {host.lower() for host in (*LOCAL, *hosts)}
        self.origins = {origin.lower().rstrip("/") for origin in origins}
        self._requests: Counter[str] = Counter()  # by client
        self._held: Counter[str] = Counter()  # bytes of bodies by client, also of those that still arrive
        self._turns = FairTurns(limits.preparing)
        self._trim: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        status = 0

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = _with_defaults(message.get("headers", []))
                self.metrics.responses.labels(str(status)).inc()
            await send(message)

        share = Share("")
        try:
            self._check(scope)
            share = self._admit(scope)
            body = await self._read(scope, receive, share)
            PLACE.set(Place(self._turns, share.client, len(body) > self.limits.small_body_bytes))
            async with asyncio.timeout(self.limits.deadline + self.limits.drain):  # a client that does not read
                await self.app(_with_type(scope, body), _replay(body, receive), guarded_send)
        except ClientGoneError:
            pass
        except TimeoutError:
            log.warning("a client did not read its answer in time")
            if not status:
                await _respond(guarded_send, ApiError(504, "the request took too long"))
        except ApiError as error:
            await _respond(guarded_send, error)
        except Exception as error:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if status:
                raise
            await _respond(guarded_send, as_api_error(error))
        finally:
            self._release(share)

    # --- who may ask

    def _check(self, scope: Scope) -> None:
        headers = _headers(scope)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        if not self._is_known(host):
            raise ApiError(
                421, f"Host {host!r:.100} is not a name of this server; add it with --allow-host", code="unknown_host"
            )
        origin = headers.get(b"origin")
        if origin is not None and not self._is_own(origin.decode("latin-1").lower(), host):
            raise ApiError(
                403, f"Origin {origin.decode('latin-1')!r:.100} is not allowed; add it with --allow-origin",
                code="unknown_origin",
            )  # fmt: skip
        if origin is None and headers.get(b"sec-fetch-site") in (b"cross-site", b"same-site"):
            raise ApiError(403, "the request comes from a page of another site", code="unknown_origin")
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise ApiError(415, "the body is compressed, which is not accepted", param="Content-Encoding")
        if self.keys and not (scope["path"] == HEALTH and not _has_credentials(headers)):
            scope["headway.client"] = self._client(headers)

    def _is_known(self, host: str) -> bool:
        """Host names that cannot be rebound: this machine's, those allowed, and addresses."""
        name = _without_port(host)
        if name in self.hosts:
            return True
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return False
        return bool(self.keys)  # without a key the server is on the loopback interface, whose names are known

    def _is_own(self, origin: str, host: str) -> bool:
        if origin.rstrip("/") in self.origins:
            return True
        try:
            return bool(host) and urlsplit(origin).scheme in ("http", "https") and urlsplit(origin).netloc == host
        except ValueError:
            return False

    def _client(self, headers: dict[bytes, bytes]) -> str:
        """The number of the key that a request has; every key is compared in full, in constant time."""
        given = headers.get(b"authorization", b"")
        scheme, _, credentials = given.partition(b" ")
        key = credentials.strip() if scheme.lower() == b"bearer" else headers.get(b"x-api-key", b"")
        if scheme.lower() == b"basic":  # what a browser asks for; the user name does not matter
            try:
                key = base64.b64decode(credentials.strip(), validate=True).partition(b":")[2]
            except (binascii.Error, ValueError):
                key = b""
        matches = [number for number, own in enumerate(self.keys) if hmac.compare_digest(own, key)]
        if not matches:
            raise ApiError(
                401, "the key is missing or wrong: send it as Authorization: Bearer KEY",
                headers={"WWW-Authenticate": 'Bearer, Basic realm="headway", charset="UTF-8"'},
            )  # fmt: skip
        return f"key {matches[0]}"

    # --- what is held

    def _admit(self, scope: Scope) -> Share:
        limits, client = self.limits, scope.get("headway.client") or (scope.get("client") or ("",))[0]
        full = self._requests.total() >= limits.connections or self._requests[client] >= limits.client_connections
        if full and scope["path"] not in PROBES:
            raise _busy("the server holds too many requests")
        self._requests[client] += 1
        return Share(client)

    def _hold(self, share: Share, size: int) -> None:
        """Counts bytes that have arrived. A small body is held beside any number of large ones."""
        limits = self.limits
        share.bytes += size
        self._held[share.client] += size
        full = self._held.total() > limits.bodies_bytes or self._held[share.client] > limits.client_bodies_bytes
        if full and share.bytes > limits.small_body_bytes:
            raise _busy("the server holds too many large requests")

    def _release(self, share: Share) -> None:
        for counts, count in ((self._requests, 1), (self._held, share.bytes)):
            counts[share.client] -= count
            if counts[share.client] <= 0:
                del counts[share.client]
        if share.bytes > self.limits.small_body_bytes and self._trim is None:
            self._trim = asyncio.get_running_loop().call_later(1, self._return_memory)

    def _return_memory(self) -> None:
        self._trim = None
        threading.Thread(target=return_garbage, daemon=True).start()

    async def _read(self, scope: Scope, receive: Receive, share: Share) -> bytes:
        most = self.limits.media_bytes if scope["path"].startswith(MEDIA) else self.limits.json_bytes
        declared = _headers(scope).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > most:
            raise ApiError(413, f"the body has {declared.decode('latin-1')[:20]} bytes, more than {most:,}")
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    part, more = message.get("body", b""), message.get("more_body", False)
                    if len(body) + len(part) > most:
                        raise ApiError(413, f"the body has more than {most:,} bytes")
                    self._hold(share, len(part))
                    body += part
        except TimeoutError:
            raise ApiError(408, f"the body did not arrive within {self.limits.body_seconds:g} s") from None
        return bytes(body)


def _busy(reason: str) -> ApiError:
    return ApiError(503, f"{reason}; try again", headers={"Retry-After": "1", "Connection": "close"})


def _headers(scope: Scope) -> dict[bytes, bytes]:
    """A header that is given twice is given as one of both values, which none of the checks accepts."""
    out: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        out[name] = out[name] + b"," + value if name in out else value
    return out


def _has_credentials(headers: dict[bytes, bytes]) -> bool:
    return b"authorization" in headers or b"x-api-key" in headers


def _with_type(scope: Scope, body: bytes) -> Scope:
    """With the content type of JSON where the body is a JSON object whose type was not said: curl's -d calls every body
    a form, whose first character is never a brace."""
    kind = _headers(scope).get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind not in (b"", FORM) or not body[:1024].lstrip().startswith(b"{"):
        return scope
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", JSON)]}


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdigit() and (":" not in name or name.endswith("]")) else host


def _replay(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replayed() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replayed


def _with_defaults(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    out = list(headers)
    present = {name.lower() for name, _ in out}
    return out + [(name, value) for name, value in HEADERS.items() if name not in present]


async def _respond(send: Any, error: ApiError) -> None:
    body = json.dumps(error.body()).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.lower().encode(), value.encode()) for name, value in (error.headers or {}).items()]
    if error.status_code in (408, 413):
        headers.append((b"connection", b"close"))  # what is left of the body is not read
    await send({"type": "http.response.start", "status": error.status_code, "headers": headers})
    await send({"type": "http.response.body", "body": body})
