"""Two network namespaces joined by a wire are two hosts: `headway train` by torchrun on both is the run of one process,
its scores included."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headway.jobs import train

NUMBERS = ["one", "two", "three", "four", "five", "six", "seven", "eight"]
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SETTINGS: dict[str, Any] = {
    **{"model.width": 32, "model.layers": 1, "model.heads": 2, "model.dropout": 0.0},
    **{"task.vocab": 300, "task.target_limit": 8, "batch": 16, "eval_every": 2, "log_every": 1},
}


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    """The names of two namespaces, each with its end of a wire."""
    if os.geteuid() != 0:
        pytest.skip("two network namespaces can be made by root only")
    if shutil.which("ip") is None:
        pytest.skip("two network namespaces are made by `ip`, which is not here (apt install iproute2)")
    names = [f"headway-{os.getpid()}-{side}" for side in "ab"]
    try:
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode:
                pytest.skip(f"a network namespace cannot be made here: {made.stderr.strip()}")
        a, b = names
        done = [ip(*f"link add wire netns {a} type veth peer name wire netns {b}".split())]
        for name, address in zip(names, ADDRESSES, strict=True):
            done.append(ip("-n", name, "addr", "add", f"{address}/24", "dev", "wire"))
            done += [ip("-n", name, "link", "set", device, "up") for device in ("wire", "lo")]
        assert not any(each.returncode for each in done), [each.stderr for each in done]
        yield names
    finally:
        for name in names:
            ip("netns", "del", name)


def carried(name: str) -> int:
    """Bytes that came in by the wire."""
    (wire,) = json.loads(ip("-n", name, "-j", "-s", "link", "show", "wire").stdout)
    return int(wire["stats64"]["rx"]["bytes"])


def log(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "training" / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow  # two processes of one host are in tests/jobs/test_ranks.py
def test_two_hosts_train_what_one_process_does(hosts: list[str], tmp_path: Path) -> None:
    pairs = [f"{a} {b}\t{b} {a}\n" for a in NUMBERS for b in NUMBERS]
    (tmp_path / "mine.tsv").write_text("".join(pairs))
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    command += [f"--master-addr={ADDRESSES[0]}", "--master-port=29500"]
    settings = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    work = ["-m", "headway", "train", "translate", "mine.tsv", "--steps", "4", "--out", "two", *settings]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "wire"}
    running = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, *command, f"--node-rank={rank}", *work],
            **{"cwd": tmp_path, "env": env, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True},
        )
        for rank, name in enumerate(hosts)
    ]
    try:
        one = train("translate", tmp_path / "mine.tsv", out=tmp_path / "one", steps=4, settings=SETTINGS)
        output = [host.communicate(timeout=500) for host in running]
    finally:
        for host in running:
            host.kill()
    assert [host.returncode for host in running] == [0, 0], output
    assert "saved in two" in output[0][0] and output[1][0] == "", "only the first process of the first host speaks"

    alone, together = log(tmp_path / "one"), log(tmp_path / "two")
    assert [list(entry) for entry in alone] == [list(entry) for entry in together]
    for left, right in zip(alone, together, strict=True):
        for name in ("loss", "norm", "scores"):
            assert right.get(name) == pytest.approx(left.get(name), abs=1e-4), (name, left, right)
    scores = json.loads((tmp_path / "two" / "training" / "scores.json").read_text())
    assert scores == pytest.approx(one.scores, abs=1e-4) and {"bleu", "loss"} <= set(scores)
    weights = sum(parameter.numel() for parameter in one.bundle.model.parameters())
    assert all(carried(name) > 4 * 4 * weights / 2 for name in hosts), "the gradients did not go by the wire"
