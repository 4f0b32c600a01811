"""A pool of threads that run one compiled function at the same time.

The threads synchronise inside the compiled code, where a barrier costs less than a microsecond (idea: llama.cpp's
thread pool), so a step of a model is one call regardless of the number of matrices. Where torch uses OpenMP (libgomp),
the function runs in a parallel region of that library: its threads spin for some milliseconds after each region, and a
second pool would compete with them for the cores. Elsewhere the pool starts its own threads.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch

from headway.engine.opcodes import BARRIER_SIZE, JOB_SIZE

Parallel = Callable[[int, int, int], None]  # (function address, job address, threads)
Function = Callable[[int], None]
_pool: ThreadPool | None = None
_lock = threading.Lock()
_forked = False  # a forked child does not have the OpenMP threads of its parent


class ThreadPool:
    """`size` threads, including the caller's."""

    def __init__(self, size: int):
        self.size, self.process = size, os.getpid()
        self._barrier, self._job = np.zeros(BARRIER_SIZE, dtype=np.int64), np.zeros(JOB_SIZE, dtype=np.int64)
        self._busy = threading.Lock()
        self._queues: list[SimpleQueue[Function | None]] = []
        self._openmp = openmp_parallel(size) if size > 1 else None
        for _ in range(1, size if self._openmp is None else 1):
            queue: SimpleQueue[Function | None] = SimpleQueue()
            self._queues.append(queue)
            threading.Thread(target=_work, args=(queue, self._job), daemon=True, name="headway").start()

    @property
    def barrier(self) -> int:
        """The address of the barrier. It belongs to the pool, because a thread may leave it after `run` returns."""
        return self._barrier.ctypes.data

    def run(self, function: int, *tables: np.ndarray) -> None:
        """Calls the compiled function at an address on every thread, with the address of a job: a counter, then the
        address and length of each table. The function must end with a barrier."""
        with self._busy:
            self._job[0] = 0
            self._job[1 : 1 + 2 * len(tables)] = [n for table in tables for n in (table.ctypes.data, len(table))]
            if self._openmp is not None:
                self._openmp(function, self._job.ctypes.data, self.size)
                return
            call = FUNCTION(function)
            for queue in self._queues:
                queue.put(call)
            call(self._job.ctypes.data)

    def shutdown(self) -> None:
        for queue in self._queues:
            queue.put(None)


FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_int64)  # releases the GIL


def _work(queue: SimpleQueue[Function | None], job: np.ndarray) -> None:
    while (call := queue.get()) is not None:
        call(job.ctypes.data)


def thread_pool() -> ThreadPool:
    """The pool of this process, with `torch.get_num_threads()` threads."""
    global _pool
    with _lock:
        size = torch.get_num_threads()
        if _pool is None or _pool.size != size or _pool.process != os.getpid():
            if _pool is not None and _pool.process == os.getpid():
                _pool.shutdown()
            _pool = ThreadPool(size)
        return _pool


def openmp_parallel(size: int) -> Parallel | None:
    """A parallel region of torch's OpenMP library. None if that is not libgomp, or if OpenMP may start fewer than
    `size` threads."""
    library = None if _forked else _libgomp()
    if library is None or library.omp_get_dynamic() or library.omp_get_thread_limit() < size:
        return None
    library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    return lambda function, job, threads: library.GOMP_parallel(function, job, threads, 0)


@cache
def _libgomp() -> ctypes.CDLL | None:
    """The OpenMP library that torch uses, if it is libgomp."""
    if not sys.platform.startswith("linux"):
        return None
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split()[-1] for line in maps if "libgomp" in line}
    bundled = {path for path in loaded if path.startswith(str(Path(torch.__file__).parent))} or loaded
    return ctypes.CDLL(bundled.pop()) if len(bundled) == 1 else None


def release_threads() -> None:
    """Ends the OpenMP threads that work for the calling thread, until it needs some again. Each thread that computes
    has its own, and libgomp stops spinning where there are more than cores: then every parallel region waits for the
    system to wake a thread, and reading a prompt takes twice the time."""
    library = None if _forked else _libgomp()
    if library is not None and hasattr(library, "omp_pause_resource_all"):  # since OpenMP 5
        library.omp_pause_resource_all(1)


def _mark_forked() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_mark_forked)
