"""`--engine vllm`: requests are passed on to another program. It is not installed here; in its place stands a program
of the same command line that serves with Headway, so that what is tested is the way there and back."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import transformers
from support import untrained
from support.commands import headway
from support.scheduling import until
from support.server import running

from headway.serving.vllm_engine import COMMAND

STAND_IN = """#!{python}
import os, sys
from headway.serving.server import Server
_, _, folder, _, name, _, host, _, port = sys.argv
Server([f"{{name}}={{folder}}"], host=host, port=int(port), keys=[os.environ["VLLM_API_KEY"]]).run()
"""


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = tmp_path / "vllm"
    program.write_text(STAND_IN.format(python=sys.executable))
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv(COMMAND, str(program))
    return program


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    config = transformers.LlamaConfig(
        hidden_size=16, num_attention_heads=2, num_hidden_layers=1, intermediate_size=32, vocab_size=50,
        max_position_embeddings=64,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).eval().save_pretrained(tmp_path / "llama")
    return tmp_path / "llama"


@pytest.mark.slow
def test_requests_are_passed_on(vllm: Path, llama: Path) -> None:
    body = {"model": "llama", "prompt": [3, 4, 5], "max_tokens": 6, "temperature": 0}
    with running(llama, engine="vllm", keys=["a key of some length"]) as server:
        key = {"Authorization": "Bearer a key of some length"}
        assert server.get("/health", **key).json() == {
            "status": "ok", "engine": "vllm", "models": {"llama": {"status": "ok"}},
        }  # fmt: skip
        assert server.get("/v1/models", **key).json()["data"][0]["id"] == "llama"
        whole = server.post("/v1/completions", body, **key)
        assert whole.status == 200 and whole.json()["choices"][0]["text"]
        events = server.post("/v1/completions", {**body, "stream": True}, **key)
        assert events.headers["content-type"].startswith("text/event-stream") and b"[DONE]" in events.body
        assert server.post("/v1/completions", {**body, "temperature": 9}, **key).error["param"] == "temperature"
        assert server.post("/v1/completions", {**body, "model": "../x"}, **key).status == 404
        assert server.post("/v1/completions", body).status == 401
        assert server.get("/v1/models", Host="evil.example", **key).status == 421
        process = next(iter(server.server.models)).process
    assert process.poll() is not None, "the other program is left"


def test_without_it_the_command_says_so(llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(COMMAND, raising=False)
    monkeypatch.setenv("PATH", "")
    refused = headway("serve", llama, "--engine", "vllm", "--port", "0", cwd=tmp_path)
    assert refused.returncode == 2 and "not installed" in refused.stderr and COMMAND in refused.stderr
    assert headway("serve", llama, "--engine", "other", cwd=tmp_path).returncode == 2


def test_a_model_that_it_cannot_open_is_refused(vllm: Path, tmp_path: Path) -> None:
    refused = headway("serve", untrained.translator(tmp_path / "own"), "--engine", "vllm", "--port", "0", cwd=tmp_path)
    assert refused.returncode == 2 and "dialect" in refused.stderr


@pytest.mark.skipif(os.name != "posix", reason="SIGTERM is a signal of POSIX systems")
def test_a_server_that_is_ended_while_it_starts_leaves_nothing(vllm: Path, llama: Path, tmp_path: Path) -> None:
    started = tmp_path / "started"
    program = "import os, pathlib, time; pathlib.Path({!r}).write_text(str(os.getpid())); time.sleep(60)"
    vllm.write_text(f"#!{sys.executable}\n" + program.format(str(started)))
    command = [sys.executable, "-m", "headway", "serve", str(llama), "--engine", "vllm", "--port", "0"]
    server = subprocess.Popen(command, cwd=tmp_path)
    until(lambda: started.exists() and bool(started.read_text()), seconds=60)
    server.terminate()
    assert server.wait(20) == 143
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)
