"""Loads the batches of the next step in a thread, while the current step computes.

What a source loads depends on the indices and the epoch alone, so it does not matter when it is loaded, or whether it
is loaded again.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter

import numpy as np
import torch

from headway.data.batch import Batch
from headway.training.protocols import Source

# A thread loads if loading takes this share of a step and these seconds; for less, switching threads costs more.
WORTH, LEAST = 0.05, 0.002
MEASURED = 3  # steps, without the first; in each of them it must take as much

Key = tuple[int, bytes]  # epoch, indices


class ReadAhead:
    def __init__(self, source: Source) -> None:
        self.source = source
        self._pool: ThreadPoolExecutor | None = None
        self._pending: dict[Key, Future[Batch]] = {}
        self._steps = -1
        self._slow = 0  # of the measured steps
        self._loading = 0.0  # seconds of the present step

    def measure(self, *, step: float) -> None:
        """Seconds of one step. Those of loading in it decide whether a thread loads; no result depends on it."""
        self._steps += 1
        if 0 < self._steps <= MEASURED:
            self._slow += self._loading > max(LEAST, WORTH * step)
        self._loading = 0.0

    @property
    def pays(self) -> bool:
        return self._slow == MEASURED

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        future, began = self._pending.pop(_key(indices, epoch), None), perf_counter()
        batch = self.source.load(indices, epoch) if future is None else future.result()
        self._loading += perf_counter() - began
        return batch

    def start(self, pieces: Iterable[np.ndarray], epoch: int) -> None:
        """Begins to load what the next step will need, where it pays; what was begun and not used is dropped."""
        self._drop()
        if not self.pays:
            return
        pool = self._pool or self._new_pool()
        for indices in pieces:
            self._pending[_key(indices, epoch)] = pool.submit(self.source.load, indices, epoch)

    def close(self) -> None:
        self._drop()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _drop(self) -> None:
        for future in self._pending.values():
            future.cancel()
        self._pending = {}

    def _new_pool(self) -> ThreadPoolExecutor:
        """One thread, which leaves the other cores to the step."""
        threads = torch.get_num_threads()
        self._pool = ThreadPoolExecutor(1, "read-ahead", initializer=torch.set_num_threads, initargs=(1,))
        self._pool.submit(int).result()  # the initializer has run
        torch.set_num_threads(threads)  # for threads that are begun later
        return self._pool


def _key(indices: np.ndarray, epoch: int) -> Key:
    return epoch, indices.tobytes()
