"""Room: engine. Threads that stand ready: compiled code runs on all of them at once, each told which one it is.

They wait for each other inside the compiled code, where a wait costs less than a microsecond (idea: llama.cpp's
thread pool), so a step of a model is one call however many matrices it multiplies.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import numpy as np
import torch

from headway.engine.orders import MEETING

Job = tuple[Callable[..., None], tuple[Any, ...]]
_crew: Crew | None = None
_lock = threading.Lock()


class Crew:
    """`size` threads, the caller's among them."""

    def __init__(self, size: int):
        self.size, self.process = size, os.getpid()
        self._meeting = np.zeros(MEETING, dtype=np.int64)
        self._busy = threading.Lock()
        self._orders: list[SimpleQueue[Job | None]] = []
        for number in range(1, size):
            orders: SimpleQueue[Job | None] = SimpleQueue()
            self._orders.append(orders)
            work = (orders, number, self._meeting)
            threading.Thread(target=_serve, args=work, daemon=True, name=f"headway-{number}").start()

    @property
    def meeting(self) -> int:
        """The address where they wait for each other. It outlives the work, which one of them may be last to leave."""
        return self._meeting.ctypes.data

    def run(self, work: Callable[..., None], *args: Any) -> None:
        """work(thread, …) on every thread; it must let the interpreter go, and wait for all before it returns."""
        with self._busy:
            for orders in self._orders:
                orders.put((work, args))
            work(0, *args)

    def dismiss(self) -> None:
        for orders in self._orders:
            orders.put(None)


def _serve(orders: SimpleQueue[Job | None], number: int, meeting: np.ndarray) -> None:
    while (order := orders.get()) is not None:
        work, args = order
        work(number, *args)


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
