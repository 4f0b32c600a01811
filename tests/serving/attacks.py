"""Hostile requests to every route of a server, while a second client asks for /health and short answers.

    PYTHONPATH=tests python tests/serving/attacks.py --minutes 10

Routes and the fields of their bodies come from the router. The server is a process of its own. The second client must
be answered in time, no request may fail with a fault of the server, the server's memory must come back, and it and its
children must end when they are told to. A server that does nothing is asked as well, so that a busy machine is not
mistaken for a slow server.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import itertools
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

LOG = "ATTACK_LOG" in os.environ  # whether each request is printed
ALLOWED, FACTOR, NOISE = 0.5, 3.0, 0.02  # seconds; times the quiet time, beside what the GIL's switches take
GROWTH = 1.2  # of memory, at most
JSON = "application/json"
QUICK = ("/health", "/metrics")
OTHER = "127.0.0.2"  # where the second client comes from
ASKED = {
    "health": ("GET", "/health", None),
    "labels": ("POST", "/models/classify", {"inputs": "please cancel my order"}),
    "text": ("POST", "/v1/completions", {"model": "language_model", "prompt": "hello", "max_tokens": 2}),
}


# ---------------------------------------------------------------------------------------- the second client


def ask(port: int, method: str, path: str, body: Any = None, *, source: str = OTHER) -> tuple[float, int]:
    """(seconds, status; 0 without an answer), on a connection of its own"""
    began, status = time.perf_counter(), 0
    connection = HTTPConnection("127.0.0.1", port, timeout=60, source_address=(source, 0))
    with contextlib.closing(connection), contextlib.suppress(OSError, HTTPException):
        connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": JSON})
        response = connection.getresponse()
        response.read()
        status = response.status
    return time.perf_counter() - began, status


def second_client(port: int) -> None:
    """Prints a line for each answer, until its input ends."""
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
    idle = HTTPServer(("127.0.0.1", 0), Idle)
    if os.fork() == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
        idle.serve_forever()
    while True:
        for kind, (method, path, body) in ASKED.items():
            print(kind, *ask(port, method, path, body), flush=True)
            print("idle", *ask(idle.server_port, "GET", "/"), flush=True)
        # a probe from the attacker's own address
        print("health", *ask(port, "GET", "/health", source="127.0.0.1"), flush=True)
        time.sleep(0.05)


class Idle(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")


class Watch:
    """What the second client sees."""

    def __init__(self, port: int) -> None:
        command = [sys.executable, __file__, "--ask", str(port)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.seen: list[tuple[str, float, int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            kind, seconds, status = line.split()
            self.seen.append((kind, float(seconds), int(status)))

    def wait(self, rounds: int) -> None:
        wanted = len(self.seen) + rounds * (2 * len(ASKED) + 1)
        while len(self.seen) < wanted and self.process.poll() is None:
            time.sleep(0.01)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)
        self._reader.join(10)


def times(seen: Sequence[tuple[str, float, int]], kind: str) -> list[float]:
    return [seconds for each, seconds, _ in seen if each == kind] or [0.0]


def problems(quiet: Sequence[tuple[str, float, int]], seen: Sequence[tuple[str, float, int]]) -> list[str]:
    """What the second client may complain about. What the server that does nothing takes is not counted."""
    busy = max(times(seen, "idle"))
    slower = max(1.0, statistics.median(times(seen, "idle")) / statistics.median(times(quiet, "idle")))
    out = []
    for kind in ASKED:
        found, usual = times(seen, kind), statistics.median(times(quiet, kind))
        if max(found) > ALLOWED + 2 * busy:
            out.append(f"{kind} took {max(found):.2f} s (a server that does nothing: {busy:.2f} s)")
        if statistics.median(found) > FACTOR * (usual * slower + NOISE):
            out.append(f"{kind} took {statistics.median(found):.3f} s mostly, {usual:.3f} s when it was quiet")
    wrong = Counter(f"{kind} had status {status}" for kind, _, status in seen if status != 200)
    return out + [f"{what}, {count} times" for what, count in wrong.items()]


# ---------------------------------------------------------------------------------------- routes and bodies


@dataclass(frozen=True)
class Case:
    name: str
    method: str
    path: str
    type: str
    body: bytes
    parts: int = 0  # bytes of each part; 0: sent as a whole


@dataclass(frozen=True)
class Route:
    method: str
    path: str
    schema: dict[str, Any]  # of its JSON body

    @property
    def fields(self) -> list[str]:
        return list(self.schema.get("properties", {})) or ["inputs"]

    def right(self) -> dict[str, Any]:
        names = self.schema.get("required", self.fields[:1])
        return {name: _example(self.schema.get("properties", {}).get(name, {}), self.schema) for name in names}


def routes() -> list[Route]:
    from headway.serving.app import MODULES
    from headway.serving.fields import body_kind

    found = []
    for route in (route for module in MODULES for route in module.router.routes):
        kind, extra = body_kind(route), getattr(route, "openapi_extra", None) or {}
        contents = extra.get("requestBody", {}).get("content", {}).values()
        schema = kind.model_json_schema() if kind else next((each["schema"] for each in contents), {})
        found += [Route(method, route.path, schema) for method in sorted(route.methods)]
    return found


def _example(schema: dict[str, Any], whole: dict[str, Any]) -> Any:
    if "$ref" in schema:
        schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return _example(schema["anyOf"][0], whole)
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type"):
        case "array":
            return [_example(schema["items"], whole)]
        case "object":
            parts = schema.get("properties", {})
            return {name: _example(parts[name], whole) for name in schema.get("required", ())}
        case "integer" | "number":
            return 1
    return "hello"


def repeated(begin: bytes, part: bytes, end: bytes) -> Callable[[int], bytes]:
    return lambda size: begin + part * ((size - len(begin) - len(end)) // len(part)) + end


VALUES: dict[str, Callable[[int], bytes]] = {  # of one field, by the size of the body
    "floats": repeated(b"[", b"1.5,", b"1]"),
    "ids": repeated(b"[", b"7,", b"1]"),
    "lists": repeated(b"[", b"[],", b"[]]"),
    "objects": repeated(b"[", b'{"a":1},', b"{}]"),
    "messages": repeated(b"[", b'{"role":"x","content":[{"type":"y"}],"z":0},', b"{}]"),
    "short texts": repeated(b"[", b'"a",', b'"a"]'),
    "texts": repeated(b"[", b'"' + b"hello you " * 100 + b'",', b'"a"]'),
    "a text": repeated(b'"', b"hello you ", b'"'),
    "a word": repeated(b'"', b"x", b'"'),
    "spaces": repeated(b'"', b" ", b'"'),
    "lines": repeated(b'"', b"\\n", b'"'),
    "quotes": repeated(b'"', b'\\"', b'"'),
    "backslashes": repeated(b'"', b"\\\\", b'"'),
    "pairs": repeated(b'"', b"\\ud83d\\ude00", b'"'),
    "half pairs": repeated(b'"', b"\\ud83d", b'"'),
    "accents": repeated(b'"a', "\N{COMBINING ACUTE ACCENT}".encode(), b'"'),
    "control tokens": repeated(b'"', b"<|x|></s>", b'"'),
    "commas in a text": repeated(b'"', b",[{", b'"'),
    "a long number": repeated(b"", b"7", b""),
    "a long fraction": repeated(b"0.", b"7", b""),
    "long numbers": repeated(b"[", b"7" * 4300 + b",", b"1]"),
    "1e400": lambda size: b"1e400",
    "a large exponent": repeated(b"1e", b"9", b""),
    "NaN": repeated(b"[", b"NaN,", b"NaN]"),
    "deep lists": repeated(b"", b"[", b""),
    "deep objects": repeated(b"", b'{"a":', b""),
    "deep, closed": lambda size: b"[" * 50_000 + b"]" * 50_000,
    "keys": lambda size: b"{" + b",".join(b'"k%d":1' % n for n in range(size // 12)) + b"}",
    "a key again": repeated(b"{", b'"a":1,', b'"a":1}'),
    "no value": repeated(b"[", b",", b"]"),
    "base64": lambda size: b'"' + base64.b64encode(random.Random(0).randbytes(size // 4 * 3)) + b'"',
    "an expression": lambda size: json.dumps(
        {"type": "regex", "value": f"(a|b)*a(a|b){{14}}{random.random()}"}
    ).encode(),
    "a schema": lambda size: json.dumps(
        {"type": "json_schema", "json_schema": {"name": "x", "schema": _schema(min(size, 10**6))}}
    ).encode(),
}


def _schema(size: int) -> dict[str, Any]:
    names = [f"k{random.random()}" for _ in range(min(1000, size // 60))]
    return {"type": "object", "properties": {name: {"type": "string", "pattern": "[a-z]{1,50}"} for name in names}}


def _form(line: bytes, per_part: int) -> Callable[[int], bytes]:
    """Parts with so many of this line in their heads."""
    part = b'--x\r\nContent-Disposition: form-data; name="a"\r\n' + line * per_part + b"\r\n\r\n"
    return lambda size: part * max(1, size // len(part)) + b"--x--\r\n"


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
WHOLE: dict[str, tuple[str, Callable[[int], bytes]]] = {  # bodies that are no JSON object
    "zeros": ("application/octet-stream", repeated(b"", b"\0", b"")),
    "zeros as JSON": (JSON, repeated(b"", b"\0", b"")),
    "blank": (JSON, repeated(b"", b" \n", b"")),
    "a BOM": (JSON, repeated(b"\xef\xbb\xbf", b"1", b"")),
    "UTF-16": (JSON, lambda size: json.dumps(["a"] * (size // 10)).encode("utf-16")),
    "not UTF-8": (JSON, repeated(b'{"inputs":"', b"\xff", b'"}')),
    "another charset": (JSON + "; charset=utf-7", repeated(b'{"inputs":"', b"+AAA-", b'"}')),
    "cut off": (JSON, repeated(b'{"inputs":["', b'a","', b"")),
    "parts": ("multipart/form-data; boundary=x", _form(b"", 0)),
    "heads of parts": ("multipart/form-data; boundary=x", _form(b"A:b\r\n", 10**6)),
    "no end of a part": ("multipart/form-data; boundary=x", repeated(b"--x\r\nA: ", b"b", b"")),
    "dashes": ("multipart/form-data; boundary=x", repeated(b"--x\r\n\r\n", b"\r\n--", b"")),
    "a form": ("application/x-www-form-urlencoded", repeated(b"q=a", b"&", b"")),
    "fields": ("application/x-www-form-urlencoded", repeated(b"", b"q=a&", b"q=b")),
    "percent signs": ("application/x-www-form-urlencoded", repeated(b"q=", b"%41", b"")),
    "a picture's head": (
        "image/png",
        repeated(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\1\0\0\0\1\0\0\x08\2\0\0\0", b"\0", b""),
    ),
    "a sound's head": ("audio/wav", repeated(b"RIFF\xff\xff\xff\x7fWAVEfmt ", b"\x10\0\0\0", b"")),
}


def cases(models: Sequence[str], rng: random.Random, *, size: int) -> Iterator[Case]:
    """Every route with every kind of body, in random order: first each route once, and each kind once."""
    every = [route for route in routes() if route.path not in QUICK]
    kinds = [*VALUES, *WHOLE]
    pairs = [(route, kind) for route in every for kind in kinds]
    rng.shuffle(pairs)
    open_ = [route for route in every if route.method in ("POST", "PUT")]
    first = list(zip(every, itertools.cycle(rng.sample(kinds, len(kinds))), strict=False))
    first += zip(itertools.cycle(rng.sample(open_, len(open_))), kinds, strict=False)
    for route, kind in [*first, *pairs]:
        yield case(route, kind, rng, models=models, size=size)


def case(route: Route, kind: str, rng: random.Random, *, models: Sequence[str], size: int) -> Case:
    values = {"{name:path}": rng.choice(models), "{name}": "x.csv", "{task}": "x", "{id}": "x"}
    path = route.path
    for name, value in values.items():
        path = path.replace(name, value)
    size = min(rng.choice((size, size, size // 8)), 8 * 2**20 - 2000)
    if kind in WHOLE:
        type_, make = WHOLE[kind]
        body = make(size)
    else:
        type_, given = JSON, route.right()
        name = "response_format" if kind in ("an expression", "a schema") else rng.choice(route.fields)
        given.pop(name, None)
        given |= {"model": rng.choice(models)} if "model" in given else {}
        begin = json.dumps(given).encode().rstrip(b"}") + (b"," if given else b"") + json.dumps(name).encode() + b":"
        body = begin + VALUES[kind](size) + b"}"
    few = rng.random()
    part = 1 if few < 0.1 else 300 if few < 0.2 else 0
    return Case(f"{route.method} {path}: {kind}", route.method, path, type_, body, part)


def send(port: int, case: Case, *, seconds: float = 120) -> int:
    """The status of the answer; 0 if the connection was closed instead."""
    connection = HTTPConnection("127.0.0.1", port, timeout=seconds)
    body: Any = case.body
    if case.parts:
        body = (case.body[at : at + case.parts] for at in range(0, min(len(case.body), 3000 * case.parts), case.parts))
    with contextlib.closing(connection):
        try:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # answered before all of it was read
                connection.request(case.method, case.path, body, {"Content-Type": case.type})
            return connection.getresponse().status
        except (OSError, HTTPException):
            return 0


# ---------------------------------------------------------------------------------------- connections


def head(path: str, size: int) -> bytes:
    text = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Length: {size}\r\n\r\n"
    return text.encode()


def unfinished(port: int, count: int, *, size: int = 32 * 2**20) -> list[socket.socket]:
    """Bodies whose last byte does not come."""
    block, out = b"x" * 2**20, list[socket.socket]()
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port), timeout=2)
        with contextlib.suppress(OSError):  # refused while it is sent
            connection.sendall(head("/models/classify", size))
            for _ in range(size // len(block) - 1):
                connection.sendall(block)
        out.append(connection)
    return out


def in_chunks(port: int, count: int = 1_000_000) -> bytes:
    """What is answered to chunks of one byte, which are sent as fast as they are taken."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    text = f"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with contextlib.closing(connection), contextlib.suppress(OSError):
        connection.sendall(text.encode())
        for _ in range(0, count, 10_000):
            connection.sendall(b"1\r\n \r\n" * min(count, 10_000))
        return connection.recv(100)
    return b""


def silent(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(count)]


# ---------------------------------------------------------------------------------------- one attack


@dataclass
class Report:
    quiet: list[tuple[str, float, int]]
    seen: list[tuple[str, float, int]] = field(default_factory=list)
    statuses: Counter[str] = field(default_factory=Counter)
    memory: tuple[float, float, float] = (0.0, 0.0, 0.0)  # bytes before, at most, and after
    faults: list[str] = field(default_factory=list)
    exit: int | None = None
    children: list[int] = field(default_factory=list)

    def problems(self) -> list[str]:
        before, _, after = self.memory
        out = problems(self.quiet, self.seen) + self.faults
        out += [f"memory grew from {before / 1e6:.0f} to {after / 1e6:.0f} MB"] if after > GROWTH * before else []
        out += [f"the server ended with exit code {self.exit}"] if self.exit != 0 else []
        return out + ([f"{len(self.children)} children are left"] if self.children else [])

    def text(self) -> str:
        longest = {kind: max(times(self.seen, kind)) for kind in (*ASKED, "idle")}
        middle = {kind: statistics.median(times(self.seen, kind)) for kind in (*ASKED, "idle")}
        quiet = {kind: statistics.median(times(self.quiet, kind)) for kind in (*ASKED, "idle")}
        lines = [f"{k}: at most {longest[k]:.3f} s, mostly {middle[k]:.3f}, quiet {quiet[k]:.3f}" for k in longest]
        before, most, after = (each / 1e6 for each in self.memory)
        return "\n".join([*lines, f"memory {before:.0f} → {most:.0f} → {after:.0f} MB", str(dict(self.statuses))])


@dataclass
class Target:
    """A server under attack, in a process of its own."""

    process: subprocess.Popen[str]
    port: int

    @property
    def resident(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096


@contextlib.contextmanager
def target(models: Sequence[Path | str], folder: Path, *options: str, code: str = "") -> Iterator[Target]:
    """`code`: what the process runs before the server, to take a protection away."""
    folder.mkdir(exist_ok=True)
    start = f"{code}\nfrom headway.cli import main\nmain()" if code else ""
    command = [sys.executable, *(["-c", start] if start else ["-m", "headway"]), "serve", *map(str, models)]
    command += ["--port", "0", "--runs", str(folder), "--train", "--threads", "1", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("listening on ")), None)
        assert line is not None, "the server did not listen"
        yield Target(process, int(line.split()[2].rpartition(":")[2]))
    finally:
        process.kill()
        process.wait()


def attacked(server: Target, attack: Callable[[Report], None], *, rounds: int = 8, seconds: float = 60) -> Report:
    """`rounds` of the second client before the attack and after it; memory may take so many seconds to come back."""
    watch = Watch(server.port)
    try:
        watch.wait(2)  # imports, and the first pass of each model
        at = len(watch.seen)
        watch.wait(rounds)
        report, before, at = Report(watch.seen[at:]), server.resident, len(watch.seen)
        most, over = [before], threading.Event()

        def measure() -> None:
            while not over.wait(0.05):
                most.append(server.resident)

        thread = threading.Thread(target=measure, daemon=True)
        thread.start()
        try:
            attack(report)
            watch.wait(2)
        finally:
            over.set()
            thread.join()
        report.seen = watch.seen[at:]
        end = time.monotonic() + seconds
        while server.resident > GROWTH * before and time.monotonic() < end:
            time.sleep(0.2)
        report.memory = before, max(most), server.resident
    finally:
        watch.close()
    return report


def ended(server: Target, report: Report) -> Report:
    """Told to end, as SIGTERM does it."""
    from serving.test_serve_process import children

    own = children(server.process.pid)
    server.process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        report.exit = server.process.wait(90)
    end = time.monotonic() + 20
    while (left := [pid for pid in own if Path(f"/proc/{pid}").exists()]) and time.monotonic() < end:
        time.sleep(0.1)
    report.children = left
    return report


def bodies(port: int, report: Report, given: Iterator[Case], *, seconds: float, clients: int = 4) -> None:
    """Sends bodies until the time is over, or there are no more."""
    end, lock = time.monotonic() + seconds, threading.Lock()

    def client() -> None:
        while time.monotonic() < end:
            with lock:
                case = next(given, None)
            if case is None:
                return
            began = time.monotonic()
            status = send(port, case)
            report.statuses[str(status)] += 1
            if status >= 500 and status not in (503, 504):
                report.faults.append(f"{case.name}, {len(case.body):,} bytes: status {status}")
            if LOG:
                print(f"{time.monotonic() - began:.2f} s {status} {len(case.body):,} {case.name}", flush=True)

    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda _: client(), range(clients)))


def connections(port: int, report: Report) -> None:
    """Unfinished bodies, chunks of one byte, silent connections."""
    held = unfinished(port, 12) + silent(port, 300)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: in_chunks(port), range(8)))
    time.sleep(1)
    for connection in held:
        connection.close()


def hostile_requests(rng: random.Random, folder: Path, *, seconds: float = 60) -> list[Report]:
    """A server of small models, attacked with bodies for so long, then with connections."""
    from support import untrained

    models = [untrained.language_model(folder / "language_model"), untrained.embedder(folder / "embedder")]
    models.append(untrained.translator(folder / "translator"))
    small = {"classify": {"vocab": 300}, "classify-image": {}, "transcribe": {"vocab": 300, "target_limit": 12}}
    models += [untrained.of_task(name, folder / name, **given) for name, given in small.items()]
    given = cases([model.name for model in models], rng, size=8 * 2**20)
    with target(models, folder / "runs") as server:
        first = attacked(server, lambda report: bodies(server.port, report, given, seconds=seconds))
        second = ended(server, attacked(server, lambda report: connections(server.port, report)))
    first.exit, first.children = second.exit, second.children
    return [first, second]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        reports = hostile_requests(random.Random(options.seed), Path(made), seconds=60 * options.minutes)
    print("\n\n".join(report.text() for report in reports))
    found = [problem for report in reports for problem in report.problems()]
    print("FAILED: " + "; ".join(found) if found else "passed")
    return 1 if found else 0


if __name__ == "__main__":
    if "--ask" in sys.argv:
        second_client(int(sys.argv[-1]))
    raise SystemExit(main())
