"""Several threads give the result of one, on OpenMP's threads and on the pool's own."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("numba")

from headway.engine import prepare, thread_pool
from headway.families import find
from headway.families.family import Keys
from headway.generation import GenerationSettings, generate
from headway.models.build import build


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def generated(weights: Any) -> list[int]:
    torch.manual_seed(0)
    values = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128}
    keys = Keys({**values, "vocab_size": 99, "max_position_embeddings": 64})
    model = prepare(build(find("llama").read(keys, "LlamaForCausalLM")).eval(), weights)
    with torch.no_grad():
        return generate(model, [[1, 2, 3]], GenerationSettings(max_new_tokens=40, speculate=False))[0][0].ids


@pytest.mark.parametrize("weights", [None, "int8"])
@pytest.mark.parametrize("openmp", [True, False])
def test_two_threads_generate_what_one_does(weights, openmp, two_threads, monkeypatch) -> None:
    torch.set_num_threads(1)
    expected = generated(weights)
    torch.set_num_threads(2)
    monkeypatch.setattr(thread_pool, "_pool", None)
    if not openmp:
        monkeypatch.setattr(thread_pool, "openmp_parallel", lambda size: None)
    assert generated(weights) == expected
    pool = thread_pool.thread_pool()
    assert pool.size == 2 and len(pool._queues) == (0 if pool._openmp is not None else 1)
    assert openmp or pool._openmp is None


def test_libgomp_is_found_where_torch_uses_it() -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists() or "libgomp" not in maps.read_text():
        pytest.skip("this torch does not use libgomp")
    assert thread_pool.openmp_parallel(2) is not None


def test_openmp_is_not_used_when_it_limits_threads() -> None:
    code = "import torch; from headway.engine.thread_pool import openmp_parallel; print(openmp_parallel(2))"
    environment = {**os.environ, "OMP_THREAD_LIMIT": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "None", done.stderr


def test_a_forked_process_uses_its_own_threads() -> None:
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    process = fork.Process(target=lambda: queue.put(thread_pool.openmp_parallel(2) is None))
    process.start()
    assert queue.get(timeout=60) is True
    process.join()


def test_threads_are_released_and_come_again() -> None:
    """In a process of its own, whose threads nothing else starts or ends."""
    if thread_pool._libgomp() is None:
        pytest.skip("this torch does not use libgomp")
    code = """
import os, torch
from headway.engine.thread_pool import release_threads
torch.set_num_threads(2)
x = torch.ones(1000, 1000)
def count():
    return len(os.listdir("/proc/self/task"))
for _ in range(3):
    assert float((x + x).sum()) == 2e6
    busy = count()
    release_threads()
    assert count() == busy - 1, (busy, count())
release_threads()
print("released")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "released", done.stderr
