"""Limits of processor time that hold on a busy machine too.

Where other processes share the core's caches and clock, the same work takes up to a few times more processor time. The
least of some repetitions is near that of a quiet machine; what is really too slow is too slow in each of them."""

import time
from collections.abc import Callable

REPETITIONS = 5


def processor_seconds(call: Callable[[], object], *, limit: float) -> float:
    """The least processor time of the call, which is repeated only while that is not below the limit."""
    least = float("inf")
    for _ in range(REPETITIONS):
        began = time.process_time()
        call()
        least = min(least, time.process_time() - began)
        if least < limit:
            break
    return least
