"""What a hostile client, page or network can do: nothing. Every route and method is enumerated from the router."""

import base64
import contextlib
import io
import json
import os
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.server import Running, running

from headway.errors import ConfigError, InputError
from headway.serving import guard
from headway.serving.app import MODULES
from headway.serving.limits import ServerLimits
from headway.serving.server import Server, TimedProtocol, check_exposure, is_loopback

KEY = "a long secret key"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")


def everything(server: Running) -> list[tuple[str, str]]:
    """Every method with every path of the router, with a value for each parameter."""
    found = [route.path for module in MODULES for route in module.router.routes] + ["/openapi.json", "/nothing"]
    assert len(found) > 20 and set(server.server.app.openapi()["paths"]) <= {p.replace(":path", "") for p in found}
    values = {"{name:path}": "embedder", "{name}": "main.js", "{task}": "x", "{id}": "x"}
    for name, value in values.items():
        found = [path.replace(name, value) for path in found]
    return [(method, path) for path in found for method in METHODS]


@pytest.fixture(scope="module")
def plain(embedder: Path) -> Iterator[Running]:
    limits = ServerLimits(
        header_seconds=0.7, body_seconds=0.7, keep_alive=1, json_bytes=100_000, media_bytes=200_000, pixels=10_000
    )
    with running(embedder, limits=limits, hosts=["models.example"], origins=["https://app.example"]) as found:
        yield found


@pytest.fixture(scope="module")
def locked(embedder: Path) -> Iterator[Running]:
    with running(embedder, keys=[KEY, "another secret key"]) as found:
        yield found


# ---------------------------------------------------------------------------------------- who may ask


def test_trust_31_54_an_unknown_host_is_refused_on_every_route_and_method(plain: Running) -> None:
    """A page of evil.example whose name was rebound to this machine."""
    every = everything(plain)
    assert len(every) > 160 and set(plain.statuses(every, Host="evil.example")) == {421}
    for host in (f"evil.example:{plain.port}", "localhost.evil.example", "127.0.0.1.nip.io", "", "[::1"):
        assert plain.get("/v1/models", Host=host).status == 421, host
    for host in ("localhost", f"127.0.0.1:{plain.port}", "models.example", "LOCALHOST:1", "[::1]:80"):
        assert plain.get("/v1/models", Host=host).status == 200, host


def test_trust_31_54_a_page_of_another_origin_is_refused_on_every_route_and_method(plain: Running) -> None:
    own = f"127.0.0.1:{plain.port}"
    assert set(plain.statuses(everything(plain), Host=own, Origin="https://evil.example")) == {403}
    for origin in (
        "null",
        "https://evil.example",
        f"http://{own}.evil.example",
        "http://localhost",
        "file://",
        "http://[",
        "",
    ):
        assert plain.get("/v1/models", Host=own, Origin=origin).status == 403, origin
    assert plain.get("/v1/models", Host=own, Sec_Fetch_Site="cross-site").status == 403
    for origin in (f"http://{own}", "https://app.example"):
        assert plain.get("/v1/models", Host=own, Origin=origin).status == 200, origin
    assert "access-control-allow-origin" not in plain.get("/v1/models", Host=own, Origin=f"http://{own}").headers


def test_the_checks_of_host_and_origin_can_fail(plain: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative control: without them the same requests are answered."""
    monkeypatch.setattr(guard.Guard, "_check", lambda self, scope: None)
    assert plain.get("/v1/models", Host="evil.example", Origin="https://evil.example").status == 200


def test_trust_31_every_route_needs_the_key(locked: Running) -> None:
    assert set(locked.statuses(each for each in everything(locked) if each[1] != "/health")) == {401}
    assert "www-authenticate" in locked.get("/").headers
    for wrong in (f"Bearer {KEY[:-1]}", f"Bearer {KEY}x", "Bearer", "Bearer ", KEY, "Basic !!!", "Bearer \u00e9" * 50):
        with contextlib.suppress(UnicodeEncodeError):
            assert locked.get("/health", Authorization=wrong).status == 401, wrong
    password = base64.b64encode(f"anyone:{KEY}".encode()).decode()
    for right in (f"Bearer {KEY}", f"bearer {KEY}", "Bearer another secret key", f"Basic {password}"):
        assert locked.get("/health", Authorization=right).status == 200, right
    assert locked.get("/health", x_api_key=KEY).status == 200
    assert locked.get("/health", Host="10.1.2.3:80", Authorization=f"Bearer {KEY}").status == 200  # not a rebound name
    assert locked.get("/health", Host="evil.example", Authorization=f"Bearer {KEY}").status == 421


def test_health_needs_no_key_and_then_says_the_status_alone(locked: Running) -> None:
    found = locked.get("/health")
    assert found.status == 200 and found.json() == {"status": "ok"}
    assert "models" in locked.get("/health", x_api_key=KEY).json()  # negative control: with the key, all
    assert locked.get("/health", Host="evil.example").status == 421


def test_keys_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def recorded(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return a == b

    monkeypatch.setattr(guard.hmac, "compare_digest", recorded)
    middleware = guard.Guard(None, limits=ServerLimits(), metrics=None, keys=["first", "second"])  # type: ignore[arg-type]
    assert middleware._client({b"authorization": b"Bearer first"}) == "key 0"
    assert compared == [(b"first", b"first"), (b"second", b"first")], "every key is compared, also after a match"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org"])
def test_trust_31_another_address_needs_a_key(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ConfigError, match="key"):
        check_exposure(host, [])
    with pytest.raises(ConfigError, match="16 or more"):
        check_exposure(host, ["short"])
    check_exposure(host, [KEY])
    for local in ("127.0.0.1", "::1", "localhost", "127.9.9.9"):
        check_exposure(local, [])


def test_a_port_that_is_taken_is_an_error(plain: Running, embedder: Path) -> None:
    with pytest.raises(ConfigError, match="port"):
        Server([str(embedder)], port=plain.port)


def test_two_models_of_one_name_are_an_error(embedder: Path) -> None:
    with pytest.raises(InputError, match="NAME="):
        Server([str(embedder), str(embedder)], port=0)


# ---------------------------------------------------------------------------------------- names and addresses

_heard: list[list[Any]] = []  # an audit hook cannot be removed


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """FastAPI reads the source lines of a route for its own error messages."""
    if _heard and event in ("open", "os.listdir", "os.scandir") and not str(arguments[0]).endswith(".py"):
        _heard[-1].append(arguments[0])


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """What any thread of this process opens or lists."""
    if not _heard:
        sys.addaudithook(_hear)
    _heard.append([])
    yield _heard[-1]
    _heard[:] = [[]]


@pytest.mark.parametrize(
    "name",
    ["../embedder", "..%2fembedder", "%2e%2e/%2e%2e/etc/passwd", "/etc/passwd", "embedder/../embedder", "embedder%00",
     "embedder%00.html", "embedder/", "EMBEDDER", "embedder%0d%0aX:%20y", "\u202eembedder", "a" * 3000],
)  # fmt: skip
def test_trust_32_a_model_is_looked_up_not_opened(plain: Running, name: str, opened: list[Any]) -> None:
    quoted = "".join(letter if letter.isascii() else f"%{byte:02x}" for letter in name for byte in letter.encode()[:1])
    for path in (f"/models/{quoted}", f"/v1/models/{quoted}", f"/static/{quoted}", f"/explain/{quoted}"):
        method = "POST" if path.startswith("/models") else "GET"
        reply = plain.request(method, path, {"inputs": "x"} if method == "POST" else None)
        assert reply.status in (404, 405), (path, reply.status, reply.body[:100])
    reply = plain.post("/v1/embeddings", {"model": name, "input": "x"})
    assert reply.status in (400, 404) and reply.error["param"] == "model"
    assert not opened


def test_control_32_a_file_that_is_opened_is_noticed(plain: Running, embedder: Path, opened: list[Any]) -> None:
    assert plain.post("/models/embedder", {"inputs": "x"}).status == 200 and not opened
    (embedder / "config.json").read_bytes()
    os.close(os.open(embedder / "config.json", os.O_RDONLY))
    os.listdir(embedder)
    assert len(opened) == 3


def test_a_link_in_the_model_s_folder_is_not_a_model(tmp_path: Path, embedder: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "own").symlink_to(embedder)
    (tmp_path / "models" / "other").symlink_to(embedder)
    with running(f"own={embedder}") as server:
        assert server.post("/models/other", {"inputs": "x"}).status == 404


def test_trust_30_33_no_address_is_fetched(tasks: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bait:
        bait.settimeout(0.2)
        url = f"http://127.0.0.1:{bait.getsockname()[1]}/secret"
        for name in ("classify-image", "transcribe"):
            for given in (url, "file:///etc/passwd", "data:text/plain,x", "//x/y", "/etc/passwd"):
                reply = tasks.post(f"/models/{name}", {"inputs": given})
                assert reply.status == 400 and reply.error["param"] == "inputs", (name, given, reply.body)
        parts = [{"type": "image_url", "image_url": {"url": url}}]
        reply = tasks.post("/v1/chat/completions", {"model": "chat", "messages": [{"role": "user", "content": parts}]})
        assert reply.status == 400
        with pytest.raises(TimeoutError):
            bait.accept()
        with socket.create_connection(bait.getsockname()):  # control: a connection is noticed
            bait.accept()[0].close()


def test_trust_60_a_bad_input_leaves_the_health_as_it_is(tasks: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of formats that are not read, damaged ones, and one on which a decoder fails as none did before."""
    eps, png = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (8, 8)).save(eps, "EPS")
    Image.new("RGB", (8, 8)).save(png, "PNG")
    for data in (eps.getvalue(), png.getvalue()[:-30], b"%!PS-Adobe-3.0 EPSF-3.0\n", b"\x89PNG\r\n\x1a\n" + bytes(40)):
        reply = tasks.post("/models/classify-image", data, Content_Type="image/png")
        assert reply.status == 400 and tasks.get("/health").status == 200, reply.body
    worker = tasks.server.models.find("classify-image").served.worker

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(worker, "_predict", broken)
        assert tasks.post("/models/classify-image", png.getvalue(), Content_Type="image/png").status == 500
        assert tasks.get("/health").status == 200
    assert tasks.post("/models/classify-image", png.getvalue(), Content_Type="image/png").status == 200


def test_control_60_a_forward_pass_that_fails_is_seen(tasks: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    png = io.BytesIO()
    Image.new("RGB", (8, 8)).save(png, "PNG")
    model = tasks.server.models.find("classify-image").served.model

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch:
        patch.setattr(next(iter(model.children())), "forward", broken)
        assert tasks.post("/models/classify-image", png.getvalue(), Content_Type="image/png").status == 500
        assert tasks.get("/health").status == 503
    assert tasks.post("/models/classify-image", png.getvalue(), Content_Type="image/png").status == 200
    assert tasks.get("/health").status == 200


# ---------------------------------------------------------------------------------------- size and time


def test_trust_30_bombs_are_refused(tasks: Running, plain: Running) -> None:
    wide = io.BytesIO()
    Image.new("1", (7_000, 7_000)).save(wide, "PNG")
    reply = tasks.post("/models/classify-image", wide.getvalue(), Content_Type="image/png")
    assert reply.status == 400 and "pixels" in reply.error["message"]
    small = io.BytesIO()
    Image.new("1", (70, 70)).save(small, "PNG")  # control
    assert tasks.post("/models/classify-image", small.getvalue(), Content_Type="image/png").status == 200
    hours = (
        b"RIFF\xff\xff\xff\x7fWAVEfmt \x10\0\0\0\x01\0\x01\0\xe8\x03\0\0\xe8\x03\0\0\x01\0\x08\0data\xff\xff\xff\x7f"
    )
    assert tasks.post("/models/transcribe", hours).status == 400
    packed = zlib.compress(json.dumps({"inputs": " " * 10**7}).encode())
    for encoding in ("gzip", "deflate", "br"):
        reply = plain.post("/embed", packed, Content_Encoding=encoding, Content_Type="application/json")
        assert reply.status == 415, encoding
    assert plain.post("/embed", {"inputs": "hello"}).status == 200


def test_a_body_has_a_limit_by_its_length_and_by_its_content(plain: Running) -> None:
    assert plain.post("/embed", {"inputs": "x" * 100_001}).status == 413
    assert plain.post("/models/embedder", b"x" * 200_001).status == 413
    connection = plain.connection()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the server may answer before it has read it all
        connection.request("POST", "/embed", iter([b"x" * 50_000] * 5), encode_chunked=True)
    with contextlib.closing(connection):
        assert connection.getresponse().status == 413
    for length in ("-1", "x", "1e9", "99999999999999999999"):
        with raw(plain, f"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n") as found:
            assert found[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 413"), length


@contextlib.contextmanager
def raw(server: Running, text: str) -> Iterator[bytes]:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
        connection.sendall(text.encode("latin-1"))
        yield connection.recv(4096)


def test_trust_54_slow_clients_are_closed_and_others_answered(plain: Running) -> None:
    """Slow-loris: sixty connections whose head never ends, and one whose body never comes."""
    slow = [socket.create_connection(("127.0.0.1", plain.port), timeout=10) for _ in range(60)]
    for connection in slow[:40]:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
    slow[59].sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
    started = time.monotonic()
    assert plain.get("/health").status == 200 and time.monotonic() - started < 8
    for _ in range(4):  # a byte from time to time does not help
        time.sleep(0.25)
        for connection in slow[:40]:
            with contextlib.suppress(OSError):
                connection.sendall(b"a")
    for connection in slow[:59]:
        with contextlib.suppress(ConnectionError):
            assert connection.recv(100) == b"", "the server has closed it"
    assert slow[59].recv(100).startswith(b"HTTP/1.1 408")
    for connection in slow:
        connection.close()
    assert plain.get("/health").status == 200


def test_control_54_a_connection_within_the_limit_stays(plain: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit closes the slow connections of the test above, and nothing else does."""
    monkeypatch.setattr(TimedProtocol, "_expire", lambda self: None)
    with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
        time.sleep(1.5)
        slow.sendall(b"a\r\nConnection: close\r\n\r\n")
        assert slow.recv(100).startswith(b"HTTP/1.1 200")


def test_trust_54_a_flood_of_headers_is_refused(plain: Running) -> None:
    many = "".join(f"X-{number}: {'a' * 100}\r\n" for number in range(3000))
    for head in (many, f"X-Long: {'a' * 200_000}\r\n"):
        with (
            contextlib.suppress(ConnectionError),
            raw(plain, f"GET /health HTTP/1.1\r\nHost: localhost\r\n{head}\r\n") as found,
        ):
            assert found.startswith(b"HTTP/1.1 400")
    few = "".join(f"X-{number}: {'a' * 100}\r\n" for number in range(30))  # control
    with raw(plain, f"GET /health HTTP/1.1\r\nHost: localhost\r\n{few}\r\n") as found:
        assert found.startswith(b"HTTP/1.1 200")
    assert plain.get("/health").status == 200


@pytest.mark.parametrize(
    "text",
    [
        "GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        "GET /health HTTP/1.1\r\n\r\n",
        "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GARBAGE\r\n\r\n",
        "POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_requests_that_two_servers_could_read_differently(plain: Running, text: str) -> None:
    with raw(plain, text) as found:
        status = int(found.split()[1])
    assert status in (400, 404, 421) or "websocket" in text, found[:200]
    assert plain.get("/health").status == 200


# ---------------------------------------------------------------------------------------- what is sent


def test_every_response_has_a_strict_policy(plain: Running) -> None:
    for path in ("/", "/static/main.js", "/health", "/nope", "/v1/models"):
        headers = plain.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["x-frame-options"] == "DENY"
        assert "server" not in headers
    page = plain.get("/").body.decode()
    assert "http://" not in page and "https://" not in page and "<script>" not in page, (
        "nothing is loaded from elsewhere"
    )
    for path in ("/docs", "/redoc", "/docs/oauth2-redirect"):
        assert plain.get(path).status == 404


def test_an_explanation_is_the_page_of_that_request(tasks: Running) -> None:
    reply = tasks.post("/models/classify", {"inputs": "please <script>alert(1)</script> cancel", "explain": True})
    page = tasks.get(reply.headers["x-explain"])
    assert page.status == 200 and b"please" in page.body and b"<script>alert(1)" not in page.body
    assert "script-src 'sha256-" in page.headers["content-security-policy"]
    body = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "explain": True}
    answer = tasks.post("/v1/chat/completions", body).json()
    assert tasks.get(answer["explain"]).status == 200
    assert tasks.get("/explain/none").status == 404
