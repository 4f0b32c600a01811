"""The heap of glibc is simulated as it is, and available memory is read from the system."""

import json
import platform
import random
import subprocess
import sys
from pathlib import Path

import pytest

from headway import memory
from headway.memory import LARGE, available_memory, heap_peak, resident_memory

MIB = 1 << 20
REPLAY = """
import ctypes, json, sys
from headway.memory import keep_freed_memory
keep_freed_memory()
libc = ctypes.CDLL(None)
libc.sbrk.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks, start, peak = {}, libc.sbrk(0), 0
for number, size in json.load(sys.stdin):
    if size < 0:
        libc.free(blocks.pop(number))
        continue
    blocks[number] = block = ctypes.c_void_p()
    assert libc.posix_memalign(ctypes.byref(block), 64, size) == 0
    peak = max(peak, libc.sbrk(0) - start)
print(peak)
"""


def test_a_block_is_reused_only_with_space_to_align_it() -> None:
    both = [(0, MIB), (1, 64), (0, -1)]
    assert heap_peak([*both, (2, MIB)]) == 2 * MIB + 64  # the same size does not fit into the freed block
    assert heap_peak([*both, (2, MIB - 128)]) == MIB + 64
    assert heap_peak([(0, MIB), (0, -1), (1, MIB)]) == MIB  # at the end of the heap it does


def test_neighbouring_free_blocks_are_joined() -> None:
    three = [(0, MIB), (1, MIB), (2, MIB), (3, 64)]
    freed = [(0, -1), (2, -1), (1, -1)]
    assert heap_peak([*three, *freed, (4, 3 * MIB - 128)]) == 3 * MIB + 64
    assert heap_peak([*three, *freed[:2], (4, 2 * MIB)]) == 5 * MIB + 64  # control: not while one between is in use


def test_very_large_blocks_are_mapped_and_returned() -> None:
    assert heap_peak([(0, LARGE), (0, -1), (1, LARGE), (1, -1)]) == LARGE


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the heap of glibc")
def test_the_heap_of_this_system_grows_as_simulated() -> None:
    """Random sizes, as of tensors, allocated and freed in random order; the memory is not touched."""
    draw, events, alive = random.Random(0), list[tuple[int, int]](), list[int]()
    for number in range(3000):
        events.append((number, draw.choice((1, 2, 3, 8, 21)) * draw.randrange(40_000, 400_000)))
        alive.append(number)
        while len(alive) > 40:
            events.append((alive.pop(draw.randrange(len(alive))), -1))
    done = subprocess.run(
        [sys.executable, "-c", REPLAY], input=json.dumps(events), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert heap_peak(events) == pytest.approx(int(done.stdout), rel=0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_memory_of_process_and_machine() -> None:
    resident, available = resident_memory(), available_memory()
    assert resident is not None and available is not None
    assert 10 * MIB < resident < 100 * (1 << 30) and available > 10 * MIB


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in {
        "max": "1000000\n",
        "now": "700000\n",
        "memory.stat": "file 5\ninactive_file 50000\n",
    }.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(memory, "GROUPS", ((str(tmp_path), "max", "now"), (str(tmp_path), "none", "now")))
    assert available_memory() == 350_000  # the cache of files can be given up
    (tmp_path / "max").write_text("max\n")  # no limit
    assert available_memory() != 350_000
