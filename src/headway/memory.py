"""Memory that is freed stays with the process. A step frees what the next one asks for again, and glibc by
default hands large blocks back to the system in between, which then zeroes every page anew."""

from __future__ import annotations

import ctypes
import platform

TRIM, MAP = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of malloc.h
LARGE, USUAL = 1 << 30, 128 << 10  # bytes; glibc begins with the second


def keep_freed_memory() -> None:
    """Only glibc can be told; elsewhere nothing changes."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM, LARGE)
        libc.mallopt(MAP, LARGE)


def give_back_freed_memory() -> None:
    """Where memory ran out, now and from then on: what is freed may be needed by those that ask the system for it and
    not malloc, such as oneDNN for the machine code it makes."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        libc.mallopt(TRIM, USUAL)
        libc.mallopt(MAP, USUAL)
        libc.malloc_trim(0)
