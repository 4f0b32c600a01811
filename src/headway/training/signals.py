"""The first SIGTERM or Ctrl-C ends a run in an orderly way; the second has its usual effect."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPING = (signal.SIGTERM, signal.SIGINT)


class Interrupt:
    """The first signal received, or None."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None


@contextmanager
def catch_signals() -> Iterator[Interrupt]:
    """Context in which the first signal is recorded and restores the previous handlers."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.getsignal(number) for number in STOPPING}

    def restore_handlers() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def record(number: int, frame: FrameType | None) -> None:
        interrupt.signal = signal.Signals(number)
        restore_handlers()

    for number in STOPPING:
        signal.signal(number, record)
    try:
        yield interrupt
    finally:
        restore_handlers()
