"""Peak memory of the process, and allocator settings of glibc.

By default glibc returns large freed blocks to the system, which zeroes every page again when the next step allocates
them.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from pathlib import Path

TRIM, MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
LARGE, DEFAULT = 1 << 30, 128 << 10  # bytes; the second is glibc's default


def keep_freed_memory() -> None:
    """Keep freed memory in the process. Does nothing without glibc."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM, LARGE)
        libc.mallopt(MAP, LARGE)


def return_freed_memory() -> None:
    """Return freed memory to the system, now and from now on. Called after running out of memory: some allocations do
    not use malloc, for example oneDNN's generated code."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM, DEFAULT)
        libc.mallopt(MAP, DEFAULT)
        libc.malloc_trim(0)


def peak_memory() -> int | None:
    """The largest resident memory of this process so far, in bytes; None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return _peak_without_resource()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, others kibibytes


def _peak_without_resource() -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), None)
