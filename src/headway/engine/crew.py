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

import torch

_crew: Crew | None = None
_lock = threading.Lock()


class Crew:
    """`size` threads, the caller's among them."""

    def __init__(self, size: int):
        self.size, self.process = size, os.getpid()
        self._busy = threading.Lock()
        self._orders: list[SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None]] = []
        for number in range(1, size):
            orders: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None] = SimpleQueue()
            self._orders.append(orders)
            threading.Thread(target=_serve, args=(orders, number), daemon=True, name=f"headway-{number}").start()

    def run(self, work: Callable[..., None], *args: Any) -> None:
        """work(thread, …) on every thread; it must let the interpreter go, and wait for all before it returns."""
        with self._busy:
            for orders in self._orders:
                orders.put((work, args))
            work(0, *args)

    def dismiss(self) -> None:
        for orders in self._orders:
            orders.put(None)


def _serve(orders: SimpleQueue[tuple[Callable[..., None], tuple[Any, ...]] | None], number: int) -> None:
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
