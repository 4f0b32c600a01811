"""Interleaved timing: peers run in turn, so that noise affects all of them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

Clock = Callable[[], float]


def use_threads() -> None:
    """Two threads for all peers, or OMP_NUM_THREADS."""
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 2)))


def interleaved(
    jobs: dict[str, Callable[[], object]], *, repeats: int, warmup: int = 2, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Seconds of each repeat, by name. On a busy machine `time.process_time` (of all threads) says more."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(warmup + repeats):
        for name, job in jobs.items():
            start = clock()
            job()
            if turn >= warmup:
                times[name].append(clock() - start)
    return times


def row(label: str, times: dict[str, list[float]], *, peer: str, ours: str) -> tuple[str, float]:
    """A table line and the ratio peer ÷ ours by the best times (above 1: we are faster)."""
    best = {name: min(seconds) for name, seconds in times.items()}
    middle = {name: statistics.median(seconds) for name, seconds in times.items()}
    ratio = best[peer] / best[ours]
    line = (
        f"{label:<28} {peer} {best[peer] * 1e3:8.1f} ms (median {middle[peer] * 1e3:8.1f})   "
        f"{ours} {best[ours] * 1e3:8.1f} ms (median {middle[ours] * 1e3:8.1f})   {ratio:5.2f}x"
    )
    return line, ratio
