"""Numba, the compiler of the engine: an optional dependency (`pip install headway[fast]`). Without it, everything runs
on torch's kernels. Compiled code is cached on disk, so a machine compiles once."""

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
def log_compilation() -> None:
    """Logs a warning, once, when the interpreter has to be compiled because it is not in the cache on disk."""
    from numba.core import event

    class Listener(event.Listener):
        def on_start(self, event: Any) -> None:
            if event.data["dispatcher"].py_func.__module__ == "headway.engine.interpreter" and not self.logged:
                logger.warning("compiling the engine for this processor, once; this can take half a minute")
                self.logged = True

        def on_end(self, event: Any) -> None:
            pass

        logged = False

    event.register("numba:compile", Listener())
