"""Whether there is a compiler: Numba, an extra (`pip install headway[fast]`). Without it all works by
torch's own kernels. What it compiles it keeps on disk, so that a machine waits for it once."""

from __future__ import annotations

import functools
import importlib.util
import logging
from typing import Any

logger = logging.getLogger(__name__)


@functools.cache
def can_compile() -> bool:
    return importlib.util.find_spec("numba") is not None


@functools.cache
def announce() -> None:
    """From now on a person is told when there is something to wait for: code that is not on disk yet."""
    from numba.core import event

    class Announcer(event.Listener):
        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func.__module__ == "headway.engine.interpreter" and not self.said:
                logger.warning("compiling the engine for this processor, once; this can take half a minute")
                self.said = True

        def on_end(self, event: Any) -> None:
            pass

        said = False

    event.register("numba:compile", Announcer())
