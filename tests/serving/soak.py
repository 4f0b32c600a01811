"""The server under a mixed load for a long time: every answer is right, and neither memory nor descriptors grow.

    python tests/serving/soak.py --minutes 60

The server is a process of its own; one request in twenty is abandoned. Every other answer is compared with the one
that the same request had before the load. Memory and descriptors are sampled: the mean of the last fifth may be at most
5% (memory) above that of the second fifth, and the descriptors at most one for each client. When the clients are gone,
no request is left and the descriptors are as many as before.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

from support import untrained

CLIENTS = 8
ABORTED = 0.05
GROWTH = 1.05  # of memory, at most


def requests() -> list[tuple[str, dict[str, Any]]]:
    """Deterministic ones, so that each has one right answer."""
    rng = random.Random(0)
    words = ["The", "import", "statement", "on", "the", "3rd", "of", "May", "1998", "hello"]
    out: list[tuple[str, dict[str, Any]]] = []
    for number in range(40):
        text = " ".join(rng.choices(words, k=rng.randrange(1, 18)))
        sampling = {"temperature": 1.0, "seed": number} if number % 2 else {"temperature": 0}
        body = {"model": "writer", "prompt": text, "max_tokens": rng.randrange(2, 40), **sampling}
        out.append(("/v1/completions", body))
        out.append(("/models/translator", {"inputs": text, "parameters": {"max_new_tokens": 12}}))
        out.append(("/embed", {"inputs": text, "model": "vectors"}))
        out.append(("/models/labels", {"inputs": text}))
    return out


def answer(port: int, path: str, body: dict[str, Any]) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        found = json.loads(response.read())
        assert response.status == 200, found
    return [choice["text"] for choice in found["choices"]] if path == "/v1/completions" else found


def abandon(port: int, path: str, body: dict[str, Any], rng: random.Random) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    time.sleep(rng.random() * 0.03)
    connection.close()


def same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, float):
        return abs(found - wanted) < 1e-4
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    return found == wanted


def client(port: int, cases: list[Any], end: float, seed: int, counts: dict[str, int], lock: threading.Lock) -> None:
    rng = random.Random(seed)
    while time.monotonic() < end:
        path, body, wanted = rng.choice(cases)
        kind = "right"
        if rng.random() < ABORTED:
            abandon(port, path, body, rng)
            kind = "abandoned"
        else:
            try:
                if not same(answer(port, path, body), wanted):
                    kind = "wrong"
            except Exception as error:
                kind = f"failed: {error!r:.80}"
        with lock:
            counts[kind] = counts.get(kind, 0) + 1


def resources(pid: int) -> tuple[int, int]:
    """(resident bytes, descriptors)"""
    resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
    return resident, len(list(Path(f"/proc/{pid}/fd").iterdir()))


def soak(folder: Path, minutes: float) -> int:
    models = [
        untrained.language_model(folder / "writer"),
        untrained.translator(folder / "translator"),
        untrained.embedder(folder / "vectors"),
        untrained.of_task("classify", folder / "labels", vocab=300),
    ]
    command = [sys.executable, "-m", "headway", "serve", *map(str, models), "--port", "0", "--threads", "1"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        line = next(line for line in server.stdout if line.startswith("listening on "))
        port = int(line.split()[2].rpartition(":")[2])
        cases = [(path, body, answer(port, path, body)) for path, body in requests()]
        before = settled(server.pid, port)
        counts, lock, samples = dict[str, int](), threading.Lock(), list[tuple[int, int]]()
        end = time.monotonic() + 60 * minutes
        threads = [threading.Thread(target=client, args=(port, cases, end, n, counts, lock)) for n in range(CLIENTS)]
        for thread in threads:
            thread.start()
        while time.monotonic() < end:
            time.sleep(max(0.2, min(10.0, minutes * 60 / 100)))
            samples.append(resources(server.pid))
        for thread in threads:
            thread.join()
        after = settled(server.pid, port)
        server.terminate()
        code = server.wait(90)
    finally:
        server.kill()
    total, abandoned = sum(counts.values()), counts.get("abandoned", 0)
    print(f"{total:,} requests in {minutes:g} minutes, {abandoned / max(1, total):.1%} abandoned: {counts}")
    problems = growth(samples)
    problems += [f"{count} requests {kind}" for kind, count in counts.items() if kind not in ("right", "abandoned")]
    problems += [] if counts.get("right") and abandoned else ["nothing was answered, or nothing abandoned"]
    problems += [] if after <= before + 2 else [f"{before} descriptors before the load, {after} after it"]
    problems += [] if code == 0 else [f"the server ended with exit code {code}"]
    print("FAILED: " + "; ".join(problems) if problems else "passed")
    return 1 if problems else 0


def growth(samples: list[tuple[int, int]]) -> list[str]:
    """What grew between the second fifth of the time and the last."""
    fifth = max(1, len(samples) // 5)
    early, late = samples[fifth : 2 * fifth] or samples, samples[-fifth:]
    memory = [statistics.mean(resident for resident, _ in part) for part in (early, late)]
    files = [statistics.mean(count for _, count in part) for part in (early, late)]
    print(f"memory {memory[0] / 1e6:.1f} → {memory[1] / 1e6:.1f} MB, descriptors {files[0]:.1f} → {files[1]:.1f}")
    out = [f"memory grew by {memory[1] / memory[0] - 1:.1%}"] if memory[1] > memory[0] * GROWTH else []
    return out + ([f"descriptors grew by {files[1] - files[0]:.1f}"] if files[1] > files[0] + CLIENTS else [])


def settled(pid: int, port: int) -> int:
    """Descriptors when no request is left; idle connections are closed after 15 s."""
    end, found = time.monotonic() + 40, 0
    while time.monotonic() < end:
        time.sleep(1)
        with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", "/health")
            models = json.loads(connection.getresponse().read())["models"].values()
        idle = not any(each["running"] or each["waiting"] for each in models)
        last, found = found, resources(pid)[1]
        if idle and found == last:
            return found
    raise AssertionError(f"requests are left, or descriptors change: {list(models)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    with tempfile.TemporaryDirectory() as made:
        raise SystemExit(soak(Path(made), parser.parse_args().minutes))
