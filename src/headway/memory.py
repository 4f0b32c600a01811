"""Allocator settings of glibc. By default it returns large freed blocks to the system, which zeroes every page again
when the next step allocates them."""

from __future__ import annotations

import ctypes
import platform

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
