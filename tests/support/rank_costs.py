"""Prints, for each case of a JSON list, what each rank of a training costs: the growth of its process (peak resident
size minus that before the model was built), and the bytes it sends in a step.

It needs MALLOC_MMAP_THRESHOLD_=65536, so that every tensor is a separate mapping that is unmapped when freed: a heap
fragments.
"""

import ctypes
import gc
import json
import os
import re
import socket
import stat
import struct
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from support.ranks import fork_ranks
from support.step_memory import Tokens, loss

from headway.distributed import init_distributed
from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import Size, decoder
from headway.training import fsdp, loop  # noqa: F401 – shard: once here, every rank has it
from headway.training.settings import Settings

TINY = {"width": 32, "layers": 1, "vocab": 64, "rows": 2, "length": 8}
BYTES_SENT = 200  # where struct tcp_info has tcpi_bytes_sent


def resident(name: str) -> int:
    """VmRSS, or VmHWM: its peak since the last reset."""
    found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def sent() -> int:
    """Bytes that this process's connections have sent, as the system counts them."""
    total = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
        except OSError:  # the listing's own, closed by now
            continue
        with socket.socket(fileno=os.dup(int(name))) as one:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                info = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                total += struct.unpack_from("<Q", info, BYTES_SENT)[0]
    return total


class Counted(Tokens):
    """Records the bytes sent at the start of each step."""

    def __init__(self, rows: int, length: int, vocab: int) -> None:
        super().__init__(rows, length, vocab)
        self.sent: list[int] = []

    def epoch(self, number: int) -> list[Any]:  # of one step
        self.sent.append(sent())
        return super().epoch(number)


def train(folder: Path, *, width: int, layers: int, vocab: int, rows: int, length: int, **settings: Any) -> int:
    """Bytes sent in the second step: DDP rebuilds its buckets after the first."""
    options = Settings(**{"steps": 3, "save_every": 0, "eval_every": 0, "device": "cpu", **settings})
    model = build(decoder(Size(width=width, layers=layers, heads=4), "modern", vocab=vocab, context=length))
    initialise(model, "modern", seed=0)
    source = Counted(rows, length, vocab)
    loop.fit(model, source, loss=loss, settings=options, folder=folder)
    return source.sent[2] - source.sent[1]


def costs(folder: Path, rank: int, case: dict[str, Any]) -> None:
    """In a rank: a tiny training to warm up, then the one that is measured."""
    train(folder / "tiny", **TINY, **{name: case[name] for name in ("shard", "optimizer") if name in case})
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = resident("VmRSS")
    measured_costs = {"sent": train(folder / "run", **case), "grown": resident("VmHWM") - before}
    both = init_distributed(torch.device("cpu")).all_gather(measured_costs)
    if rank == 0:
        (folder / "costs.json").write_text(json.dumps(both))


def measured(ranks: int, case: dict[str, Any]) -> list[dict[str, int]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fork_ranks(ranks, lambda rank: costs(folder, rank, case))
        return list(json.loads((folder / "costs.json").read_text()))


def main(cases: list[dict[str, Any]]) -> None:
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # not needed
    loop.keep_freed_memory = lambda: None
    with tempfile.TemporaryDirectory() as folder:
        train(Path(folder), **TINY)  # imports, once for all ranks
    print(json.dumps([measured(case.pop("ranks"), case) for case in cases]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
