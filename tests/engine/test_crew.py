"""Several threads write what one does, on torch's own threads and on the crew's."""

import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("numba")

from headway.engine import prepare
from headway.engine import thread_pool as room
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


def written(weights: Any) -> list[int]:
    torch.manual_seed(0)
    values = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 128}
    keys = Keys({**values, "vocab_size": 99, "max_position_embeddings": 64})
    model = prepare(build(find("llama").read(keys, "LlamaForCausalLM")).eval(), weights)
    with torch.no_grad():
        return generate(model, [[1, 2, 3]], GenerationSettings(max_new_tokens=40, speculate=False))[0][0].ids


@pytest.mark.parametrize("weights", [None, "int8"])
@pytest.mark.parametrize("lent", [True, False])
def test_two_threads_write_what_one_does(weights, lent, two_threads, monkeypatch) -> None:
    torch.set_num_threads(1)
    alone = written(weights)
    torch.set_num_threads(2)
    monkeypatch.setattr(room, "_crew", None)
    if not lent:
        monkeypatch.setattr(room, "torchs_threads", lambda size: None)
    assert written(weights) == alone
    hands = room.crew()
    assert hands.size == 2 and len(hands._orders) == (0 if hands._lend is not None else 1)
    assert lent or hands._lend is None


def test_torchs_threads_are_found_where_they_are_libgomps() -> None:
    maps = Path("/proc/self/maps")
    if not maps.exists() or "libgomp" not in maps.read_text():
        pytest.skip("this torch does not use libgomp")
    assert room.torchs_threads(2) is not None


def test_threads_that_may_be_fewer_than_asked_for_are_not_lent() -> None:
    code = "import torch; from headway.engine.thread_pool import torchs_threads; print(torchs_threads(2))"
    done = subprocess.run([sys.executable, "-c", code], env={"OMP_THREAD_LIMIT": "1"}, capture_output=True, text=True)
    assert done.stdout.strip() == "None", done.stderr


def test_a_forked_process_has_threads_of_its_own() -> None:
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    process = fork.Process(target=lambda: queue.put(room.torchs_threads(2) is None))
    process.start()
    assert queue.get(timeout=60) is True
    process.join()
