"""One forward pass at a time, over all models: the threads of one pass use all cores, and those of a second would
compete with them. So would threads that a pass of another model has left behind: who hands over the turn ends them."""

from __future__ import annotations

import threading
from collections import deque
from types import TracebackType

from headway.engine.thread_pool import release_threads


class Turns:
    """A lock that is acquired in the order of arrival, so that no model starves another."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Event] = deque()

    def __enter__(self) -> Turns:
        with self._lock:
            if not self._held:
                self._held = True
                return self
            turn = threading.Event()
            self._waiting.append(turn)
        turn.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            if not self._waiting:
                self._held = False
                return
            following = self._waiting.popleft()
        release_threads()
        following.set()  # the lock stays held, by the next one

    def pause(self) -> None:
        """Lets those that wait have their turns; called by the holder."""
        if self._waiting:
            self.__exit__(None, None, None)
            self.__enter__()
