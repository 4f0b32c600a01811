"""Threads that stand ready: compiled code runs on all of them at once.

They wait for each other inside the compiled code, where a wait costs less than a microsecond (idea: llama.cpp's
thread pool), so a step of a model is one call however many matrices it multiplies. Where torch's threads are OpenMP's
(libgomp), they are lent for it: after each parallel work of torch's own they look out for the next one for some
milliseconds without rest, and threads beside them would have to share the processors with them. Elsewhere the crew has
threads of its own.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import torch

from headway.engine.opcodes import JOB, MEETING

Lend = Callable[[int, int, int], None]  # runs the code at an address, given a job's, on so many threads
_crew: Crew | None = None
_lock = threading.Lock()
_forked = False  # OpenMP's threads are not there in a process that was forked


class Crew:
    """`size` threads, the caller's among them."""

    def __init__(self, size: int):
        self.size, self.process = size, os.getpid()
        self._meeting, self._job = np.zeros(MEETING, dtype=np.int64), np.zeros(JOB, dtype=np.int64)
        self._busy = threading.Lock()
        self._orders: list[SimpleQueue[Callable[[int], None] | None]] = []
        self._lend = torchs_threads(size) if size > 1 else None
        for _ in range(1, size if self._lend is None else 1):
            orders: SimpleQueue[Callable[[int], None] | None] = SimpleQueue()
            self._orders.append(orders)
            threading.Thread(target=_serve, args=(orders, self._job), daemon=True, name="headway").start()

    @property
    def meeting(self) -> int:
        """The address where they wait for each other. It outlives the work, which one of them may be last to leave."""
        return self._meeting.ctypes.data

    def run(self, code: int, *tables: np.ndarray) -> None:
        """The compiled code at this address on every thread, with a job's address: how many threads have begun it, then
        where each table is and how long. It waits for all threads before it returns."""
        with self._busy:
            self._job[0] = 0
            self._job[1 : 1 + 2 * len(tables)] = [n for table in tables for n in (table.ctypes.data, len(table))]
            if self._lend is not None:
                self._lend(code, self._job.ctypes.data, self.size)
                return
            call = CALL(code)
            for orders in self._orders:
                orders.put(call)
            call(self._job.ctypes.data)

    def dismiss(self) -> None:
        for orders in self._orders:
            orders.put(None)


CALL = ctypes.CFUNCTYPE(None, ctypes.c_int64)  # lets the interpreter go


def _serve(orders: SimpleQueue[Callable[[int], None] | None], job: np.ndarray) -> None:
    while (call := orders.get()) is not None:
        call(job.ctypes.data)


def crew() -> Crew:
    """The process's own, of as many threads as torch uses."""
    global _crew
    with _lock:
        size = torch.get_num_threads()
        if _crew is None or _crew.size != size or _crew.process != os.getpid():
            if _crew is not None and _crew.process == os.getpid():
                _crew.dismiss()
            _crew = Crew(size)
        return _crew


def torchs_threads(size: int) -> Lend | None:
    """None where they are not libgomp's, or where OpenMP may give fewer than it is asked for."""
    if _forked or not sys.platform.startswith("linux"):
        return None
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = {line.split()[-1] for line in maps if "libgomp" in line}
    own = {path for path in loaded if path.startswith(str(Path(torch.__file__).parent))} or loaded
    if len(own) != 1:
        return None
    library = ctypes.CDLL(own.pop())
    if library.omp_get_dynamic() or library.omp_get_thread_limit() < size:
        return None
    library.GOMP_parallel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint]
    library.GOMP_parallel.restype = None
    return lambda code, job, threads: library.GOMP_parallel(code, job, threads, 0)


def _leave_threads_behind() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_threads_behind)
