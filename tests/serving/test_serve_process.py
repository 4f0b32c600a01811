"""`headway serve` as a process: what it prints, SIGTERM under load, no child left; and the memory budget."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest
from support import untrained
from support.commands import headway
from support.server import running

from headway.errors import InputError
from headway.serving.limits import ServerLimits
from headway.serving.model_table import named
from headway.serving.server import bind


@contextlib.contextmanager
def process(*arguments: str | Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """(process, port) of a server that listens."""
    command = [sys.executable, "-m", "headway", "serve", *map(str, arguments), "--port", "0"]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
    )
    assert started.stdout is not None
    try:
        for line in started.stdout:
            if line.startswith("listening on "):
                yield started, int(line.split()[2].rpartition(":")[2])
                break
        else:
            pytest.fail("the server did not listen")
    finally:
        started.kill()
        started.wait()
        started.stdout.close()


def children(pid: int) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(folder.name))
    return found


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("drain", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_trust_36_sigterm_lets_running_answers_finish(tmp_path: Path, drain: bool) -> None:
    """Four answers of some seconds, two of them streamed. Without drain (control): a second signal ends the process at
    once, and no answer is whole; a child is left in neither case."""
    model = untrained.language_model(tmp_path / "long", context=2048)
    body = {"model": "long", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1500, "temperature": 1,
            "logit_bias": {"1": -100, "2": -100, "0": -100}, "min_tokens": 1500}  # fmt: skip

    def get(port: int, path: str) -> dict:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return json.loads(connection.getresponse().read())

    def whole(number: int, status: int, text: str) -> None:
        assert status == 200, text
        assert text.rstrip().endswith("[DONE]") if number % 2 == 0 else json.loads(text)["choices"]

    with process(model, "--drain", "900") as (server, port):  # far more than the answers take, on a busy machine too

        def ask(stream: bool) -> tuple[int, str]:
            data = json.dumps(body | {"stream": stream})
            with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=900)) as connection:
                connection.request("POST", "/v1/chat/completions", data, {"Content-Type": "application/json"})
                response = connection.getresponse()
                return response.status, response.read().decode()

        with ThreadPoolExecutor(4) as pool:
            answers = [pool.submit(ask, number % 2 == 0) for number in range(4)]
            end = time.monotonic() + 600
            while get(port, "/health")["models"]["long"]["running"] < 4:
                assert time.monotonic() < end and not any(answer.done() for answer in answers)
                time.sleep(0.02)
            sandbox = children(server.pid)
            server.send_signal(signal.SIGTERM)
            assert not any(answer.done() for answer in answers), "all were running"
            if not drain:
                time.sleep(0.1)
                server.send_signal(signal.SIGTERM)
            for number, answer in enumerate(answers):
                if not drain:
                    with pytest.raises((OSError, HTTPException, AssertionError, ValueError)):
                        whole(number, *answer.result())
                    continue
                status, text = answer.result()
                whole(number, status, text)
        assert server.wait(120) == 0 or not drain
        end = time.monotonic() + (0 if drain else 20)  # it notices the end of a server that could not end it
        while (left := [child for child in sandbox if Path(f"/proc/{child}").exists()]) and time.monotonic() < end:
            time.sleep(0.1)
        assert sandbox and not left, "a child is left"
        with pytest.raises(OSError):
            HTTPConnection("127.0.0.1", port, timeout=5).request("GET", "/health")


def test_the_command_refuses_what_is_not_safe_or_not_there(language_model: Path, tmp_path: Path) -> None:
    open_ = headway("serve", language_model, "--host", "0.0.0.0", cwd=tmp_path)
    assert open_.returncode == 2 and "key" in open_.stderr
    (tmp_path / "keys").write_text("short\n")
    short = headway("serve", language_model, "--host", "0.0.0.0", "--key-file", "keys", cwd=tmp_path)
    assert short.returncode == 2 and "16 or more" in short.stderr
    missing = headway("serve", language_model, "--key-file", "none", cwd=tmp_path)
    assert missing.returncode == 2 and "none" in missing.stderr
    nothing = headway("serve", tmp_path / "nothing", "--port", "0", cwd=tmp_path)
    assert nothing.returncode == 2 and "nothing" in nothing.stderr


def test_a_model_has_the_name_of_its_folder_or_a_given_one(tmp_path: Path) -> None:
    (tmp_path / "intents").mkdir()
    assert named(str(tmp_path / "intents")) == ("intents", str(tmp_path / "intents"))
    assert named(f"en-de={tmp_path}/x") == ("en-de", f"{tmp_path}/x")
    assert named("owner/model") == ("owner/model", "owner/model")


def test_the_least_recently_used_model_is_unloaded_but_never_a_busy_one(
    language_model: Path, translator: Path, embedder: Path
) -> None:
    sizes = [
        sum(f.stat().st_size for f in each.glob("*.safetensors")) for each in (language_model, translator, embedder)
    ]
    budget = round((sizes[1] + max(sizes[0], sizes[2])) * 1.02)  # the translator and one of the others
    with running(language_model, translator, embedder, memory=budget, limits=ServerLimits(deadline=20)) as server:
        models = server.server.models

        def loaded() -> list[str]:
            return [entry.name for entry in models if entry.served is not None]

        assert loaded() == ["translator", "embedder"], "all were loaded once, the first was unloaded"
        assert [entry.task for entry in models] == ["generate", "translate", "embed"]
        assert server.post("/embed", {"inputs": "hello"}).status == 200
        text = {"model": "language_model", "prompt": "hello", "max_tokens": 3}
        assert server.post("/v1/completions", text).status == 200
        assert loaded() == ["language_model", "embedder"], "the translator was used longest ago"
        assert server.get("/health").json()["models"]["translator"]["status"] == "unloaded"

        worker = models.find("language_model").served.worker
        gate, step = threading.Event(), worker.session.step
        worker.session.step = lambda: step() if gate.is_set() else time.sleep(0.01) or []  # no progress until then
        with ThreadPoolExecutor(2) as pool:
            busy = pool.submit(server.post, "/v1/completions", text)
            while not worker.busy:
                time.sleep(0.01)
            other = server.post("/v1/completions", {"model": "translator", "prompt": "hello", "max_tokens": 3})
            assert other.status == 200 and loaded() == ["language_model", "translator"], "the busy one stayed"
            gate.set()
            assert busy.result().status == 200
        assert {entry.name for entry in models if entry.served is None} == {"embedder"}


def test_a_model_over_the_budget_is_an_error(language_model: Path) -> None:
    with pytest.raises(InputError, match="budget"), running(language_model, memory=1000):
        pass


def test_a_prefix_is_reused_and_the_answer_is_the_same(language_model: Path) -> None:
    body = {"model": "language_model", "prompt": "hello " * 40, "max_tokens": 8, "temperature": 0}
    answers = {}
    for cached in (True, False):
        with running(language_model, prefix_cache=cached) as server:
            entry = server.server.models.find("language_model").served
            found = [server.post("/v1/completions", body).json()["choices"][0]["text"] for _ in range(2)]
            assert found[0] == found[1] and len(entry.bundle.prefixes) == (1 if cached else 0)
            answers[cached] = found[0]
    assert answers[True] == answers[False]


def test_parts_of_a_stream_are_not_held_back() -> None:
    """TCP_NODELAY; without it the first part of an answer waits for the client's delayed acknowledgement."""

    async def option() -> int:
        listening, found = bind("127.0.0.1", 0), asyncio.get_running_loop().create_future()

        def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            found.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        server = await asyncio.start_server(accepted, sock=listening)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        value = await found
        writer.close()
        server.close()
        return value

    assert asyncio.run(option()) != 0
