"""SIGTERM and Ctrl-C ask for an orderly end; asked twice, the process ends as it would have without us."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Interrupt:
    """The first signal that came, if any."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None


@contextmanager
def listening() -> Iterator[Interrupt]:
    """While inside, the first signal is noted and gives the handlers back, so that a second one works at once."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.getsignal(number) for number in STOPPING}

    def give_back() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, frame: FrameType | None) -> None:
        interrupt.signal = signal.Signals(number)
        give_back()

    for number in STOPPING:
        signal.signal(number, note)
    try:
        yield interrupt
    finally:
        give_back()
