"""Room: engine. Whether there is a compiler: Numba, an extra (`pip install headway[fast]`). Without it all works by
torch's own kernels."""

from __future__ import annotations

import functools
import importlib.util


@functools.cache
def can_compile() -> bool:
    return importlib.util.find_spec("numba") is not None
