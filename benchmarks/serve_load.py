"""A closed loop of clients against a server, in a process of its own: each client sends its next request when it has
the answer to the one before. Prints one JSON object.

    python -m benchmarks.serve_load SPECIFICATION   (a JSON object: see `Load`)
"""

from __future__ import annotations

import json
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from http.client import HTTPConnection
from typing import Any


@dataclass
class Load:
    port: int
    path: str
    bodies: list[dict[str, Any]]  # sent in turn
    clients: int = 1
    requests: int = 16  # altogether
    stream: bool = False


@dataclass
class Found:
    seconds: float = 0.0
    requests: int = 0
    failed: int = 0
    tokens: int = 0  # that the server reports
    first: list[float] = field(default_factory=list)  # seconds to the first token of each request
    between: list[float] = field(default_factory=list)


def client(load: Load, numbers: Any, found: Found, lock: threading.Lock) -> None:
    connection = HTTPConnection("127.0.0.1", load.port, timeout=600)
    while True:
        with lock:
            number = next(numbers, None)
        if number is None:
            break
        began = time.perf_counter()
        data = json.dumps(load.bodies[number % len(load.bodies)])
        connection.request("POST", load.path, data, {"Content-Type": "application/json"})
        response = connection.getresponse()
        first, between, tokens = None, list[float](), 0
        if load.stream:
            last = began
            while line := response.readline():
                if line.startswith(b"data: {"):
                    now = time.perf_counter()
                    if first is None:
                        first = now - began
                    else:
                        between.append(now - last)
                    last = now
                    tokens += 1
        else:
            answer = json.loads(response.read() or b"{}")
            usage = answer.get("usage", {}) if isinstance(answer, dict) else {}
            tokens = usage.get("completion_tokens", 0)
        with lock:
            found.requests += 1
            found.failed += response.status != 200
            found.tokens += tokens
            found.between += between
            found.first += [] if first is None else [first]
    connection.close()


def run(load: Load) -> Found:
    found, lock, numbers = Found(), threading.Lock(), iter(range(load.requests))
    threads = [threading.Thread(target=client, args=(load, numbers, found, lock)) for _ in range(load.clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.seconds = time.perf_counter() - began
    return found


if __name__ == "__main__":
    print(json.dumps(asdict(run(Load(**json.loads(sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()))))))
