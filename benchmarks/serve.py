"""The server under load, beside others with the same weights: closed loops of 1, 4 and 16 clients on this machine.

    python -m benchmarks.serve [--part decode|embed|translate|stall] [--weights int8] [--peers .venv-serve/bin/python]

decode     134M of LLaMA's shape, 64 tokens in and 64 out: llama.cpp's own server (f32; Q8_0 beside --weights int8), and
           the same model in this process without HTTP
embed      MiniLM, against sentence-transformers behind LitServe
translate  61M encoder-decoder, greedy, 30 tokens in and 40 out, against CTranslate2 behind LitServe
stall      time between the tokens of running answers while a prompt of 2,000 tokens arrives

Servers are processes of their own with the same number of threads, loaded in turn; without --peers, Headway alone.
"""

from __future__ import annotations

import argparse
import contextlib
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.models import VOCAB, llama_134m, marian_61m
from benchmarks.serve_load import Load

PROMPT = 64  # tokens


@dataclass(frozen=True)
class Target:
    name: str
    port: int
    path: str
    body: Callable[[list[int], int], dict[str, Any]]  # (ids, new tokens)


def threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS", 2))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextlib.contextmanager
def started(command: list[str], port: int) -> Iterator[None]:
    environment = os.environ | {"OMP_NUM_THREADS": str(threads()), "NUMBA_NUM_THREADS": str(threads())}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            end = time.monotonic() + 300
            while True:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
                if process.poll() is not None or time.monotonic() > end:
                    log.seek(0)
                    raise SystemExit(f"{command[:4]} did not start:\n{log.read().decode(errors='replace')[-2000:]}")
                time.sleep(0.2)
            yield
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def loaded(target: Target, *, clients: int, requests: int, new: int, stream: bool = False) -> dict[str, Any]:
    rng = random.Random(0)
    bodies = [target.body([rng.randrange(3, VOCAB) for _ in range(PROMPT)], new) for _ in range(max(8, clients))]
    bodies = [body | ({"stream": True} if stream else {}) for body in bodies]
    load = Load(target.port, target.path, bodies, clients=clients, requests=requests, stream=stream)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serve_load"], input=json.dumps(load.__dict__), capture_output=True, text=True
    )
    found = json.loads(done.stdout)
    assert not found["failed"], f"{target.name}: {found['failed']} requests failed"
    return found


def our_server(folder: Path, weights: str | None, port: int) -> list[str]:
    command = [sys.executable, "-m", "headway", "serve", f"model={folder}", "--port", str(port)]
    command += ["--threads", str(threads()), "--no-prefix-cache"]
    return [*command, "--weights", weights] if weights else command


def our_body(ids: list[int], new: int) -> dict[str, Any]:
    return {"model": "model", "prompt": ids, "max_tokens": new, "min_tokens": new, "temperature": 0}


def llama_body(ids: list[int], new: int) -> dict[str, Any]:
    return {"prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True, "cache_prompt": False}


@contextlib.contextmanager
def decoders(options: argparse.Namespace) -> Iterator[tuple[list[Target], Path]]:
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made)
        reference = llama_134m(folder)
        ours, theirs = free_port(), free_port()
        targets = [Target("headway", ours, "/v1/completions", our_body)]
        stack.enter_context(started(our_server(folder, options.weights, ours), ours))
        if options.peers:
            from benchmarks.peers import write_gguf

            gguf = folder / "model.gguf"
            write_gguf(reference, gguf, quantised=options.weights == "int8")
            script = str(Path(__file__).with_name("serve_peers.py"))
            command = [options.peers, script, "llama.cpp", str(gguf), str(theirs), str(threads())]
            stack.enter_context(started(command, theirs))
            targets.append(Target("llama.cpp", theirs, "/v1/completions", llama_body))
        del reference
        yield targets, folder


def decode(options: argparse.Namespace) -> list[str]:
    ratios = []
    with decoders(options) as (targets, folder):
        rates: dict[tuple[str, int], float] = {}
        for target in targets:
            loaded(target, clients=1, requests=2, new=options.new)
        for clients in options.clients:
            requests = max(options.requests, 2 * clients)
            for target in targets:
                runs = [
                    loaded(target, clients=clients, requests=requests, new=options.new) for _ in range(options.repeats)
                ]
                rates[target.name, clients] = max(run["tokens"] / run["seconds"] for run in runs)
                middle = statistics.median(run["tokens"] / run["seconds"] for run in runs)
                rate = rates[target.name, clients]
                print(
                    f"{target.name:<12} {clients:>3} clients  {rate:8.1f} tokens/s (median {middle:8.1f})", flush=True
                )
        for target in targets:
            run = loaded(target, clients=1, requests=options.requests, new=options.new, stream=True)
            first, between = statistics.median(run["first"]), statistics.median(run["between"])
            print(
                f"{target.name:<12} first token {first * 1e3:7.1f} ms, between tokens {between * 1e3:6.2f} ms",
                flush=True,
            )
        ratios += [
            f"{clients} clients / {peer} {rates['headway', clients] / rates[peer, clients]:.2f}"
            for peer in {target.name for target in targets} - {"headway"}
            for clients in options.clients
        ]
        ratios += [
            f"own {n} / 1 {rates['headway', n] / rates['headway', options.clients[0]]:.2f}" for n in options.clients[1:]
        ]
        rate, first = in_process(folder, options)
        print(f"{'in process':<12}   1 client   {rate:8.1f} tokens/s, first token {first * 1e3:7.1f} ms")
        ratios.append(f"HTTP / in process {rates['headway', options.clients[0]] / rate:.2f}")
    return ratios


def in_process(folder: Path, options: argparse.Namespace) -> tuple[float, float]:
    """(tokens/s, seconds to the first token) of the same requests without HTTP, in a process of its own."""
    code = f"""
import json, random, statistics, time, torch, headway
torch.set_num_threads({threads()})
from headway.generation import GenerationSettings, generate
model = headway.load({str(folder)!r}, weights={options.weights!r}).model
rng, rates, firsts = random.Random(0), [], []
settings = GenerationSettings(max_new_tokens={options.new}, min_new_tokens={options.new}, eos_ids=(2,))
for turn in range({options.requests} + 2):
    ids, times, began = [rng.randrange(3, {VOCAB}) for _ in range({PROMPT})], [], time.perf_counter()
    generate(model, [ids], settings, on_token=lambda token: times.append(time.perf_counter()))
    if turn > 1:
        rates.append({options.new} / (time.perf_counter() - began)); firsts.append(times[0] - began)
print(json.dumps([{options.new} * len(rates) / sum({options.new} / rate for rate in rates), statistics.median(firsts)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    rate, first = json.loads(done.stdout)
    return rate, first


def stall(options: argparse.Namespace) -> list[str]:
    """The 95th percentile between the tokens of four answers while a prompt of 2,000 tokens arrives."""
    found: dict[str, float] = {}
    with decoders(options) as (targets, _):
        for target in targets:
            loaded(target, clients=1, requests=2, new=8)
            long = target.body([5 + i % 1000 for i in range(2000)], 8)

            def disturb(target: Target = target, long: Any = long) -> None:
                from http.client import HTTPConnection

                for _ in range(3):
                    time.sleep(1.0)
                    connection = HTTPConnection("127.0.0.1", target.port, timeout=600)
                    connection.request("POST", target.path, json.dumps(long), {"Content-Type": "application/json"})
                    connection.getresponse().read()

            thread = threading.Thread(target=disturb)
            thread.start()
            run = loaded(target, clients=4, requests=12, stream=True, new=96)
            thread.join()
            found[target.name] = statistics.quantiles(run["between"], n=20)[-1]
            worst = max(run["between"])
            most = found[target.name] * 1e3
            print(f"{target.name:<12} between tokens: 95% below {most:.1f} ms, worst {worst * 1e3:.1f} ms", flush=True)
    return [f"p95 between tokens / {peer} {found['headway'] / found[peer]:.2f}" for peer in found if peer != "headway"]


def embed(options: argparse.Namespace) -> list[str]:
    from benchmarks.embed import paragraphs
    from benchmarks.finetune import minilm

    texts = [text[:600] for text in paragraphs(200)]
    ours, theirs = free_port(), free_port()
    rates: dict[str, float] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(started(our_server(minilm(), options.weights, ours), ours))
        targets = [
            Target("headway", ours, "/v1/embeddings", lambda ids, _: {"model": "model", "input": texts[ids[0] % 200]})
        ]
        if options.peers:
            script = str(Path(__file__).with_name("serve_peers.py"))
            command = [options.peers, script, "sentence-transformers", str(minilm()), str(theirs), str(threads())]
            stack.enter_context(started(command, theirs))
            targets.append(Target("LitServe", theirs, "/predict", lambda ids, _: {"input": texts[ids[0] % 200]}))
        for target in targets:
            time.sleep(5 if target.name != "headway" else 0)  # LitServe listens before its model is loaded
            loaded(target, clients=4, requests=16, new=1)
            runs = [loaded(target, clients=16, requests=8 * options.requests, new=1) for _ in range(options.repeats)]
            rates[target.name] = max(run["requests"] / run["seconds"] for run in runs)
            print(f"{target.name:<12} 16 clients  {rates[target.name]:8.1f} texts/s", flush=True)
    return [f"embeddings / {peer} {rates['headway'] / rates[peer]:.2f}" for peer in rates if peer != "headway"]


def translate(options: argparse.Namespace) -> list[str]:
    from benchmarks.peers import ctranslate2_peers, word

    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder, ours, theirs = Path(made), free_port(), free_port()
        reference = marian_61m(folder)
        stack.enter_context(started(our_server(folder, options.weights, ours), ours))
        targets = [Target("headway", ours, "/v1/completions", lambda ids, _: our_body(ids[:30], 40))]
        if options.peers and ctranslate2_peers(reference, folder, "CTranslate2 fp32"):
            script = str(Path(__file__).with_name("serve_peers.py"))
            command = [
                options.peers,
                script,
                "ctranslate2",
                str(folder / "CTranslate2 fp32"),
                str(theirs),
                str(threads()),
            ]
            stack.enter_context(started(command, theirs))
            targets.append(Target("LitServe", theirs, "/predict", lambda ids, _: {"tokens": list(map(word, ids[:30]))}))
        for target in targets:
            time.sleep(5 if target.name != "headway" else 0)
            loaded(target, clients=4, requests=8, new=40)
            runs = [loaded(target, clients=16, requests=4 * options.requests, new=40) for _ in range(options.repeats)]
            rates[target.name] = max(run["tokens"] / run["seconds"] for run in runs)
            print(f"{target.name:<12} 16 clients  {rates[target.name]:8.1f} tokens/s", flush=True)
    return [f"translation / {peer} {rates['headway'] / rates[peer]:.2f}" for peer in rates if peer != "headway"]


PARTS = {"decode": decode, "stall": stall, "embed": embed, "translate": translate}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=[*PARTS, "all"], default="all")
    parser.add_argument("--weights", help="int8, or as they are")
    parser.add_argument("--peers", help="Python of the environment with the other servers")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--new", type=int, default=64, help="tokens of an answer (decode)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    options = parser.parse_args()
    ratios = []
    for name, part in PARTS.items():
        if options.part in (name, "all"):
            print(f"{name}, {options.weights or 'fp32'}, {threads()} threads")
            ratios += part(options)
    print("ratio " + ", ".join(ratios or ["none: give --peers"]))


if __name__ == "__main__":
    main()
