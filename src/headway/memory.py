"""Memory of the process and of the machine, and the allocator of glibc.

By default glibc returns large freed blocks to the system, which zeroes every page again when the next step allocates
them.
"""

from __future__ import annotations

import bisect
import ctypes
import gc
import platform
import sys
from collections.abc import Iterable
from pathlib import Path

TRIM, MAP, ARENAS = -1, -3, -8  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX of malloc.h
LARGE, DEFAULT = 1 << 30, 128 << 10  # bytes; the second is glibc's default
ALIGNMENT, SLACK = 64, 96  # bytes: of tensors; what glibc looks for in addition, to align a block
GROUPS = (  # folder, limit and usage of a container's control group, of version 2 and 1
    ("/sys/fs/cgroup", "memory.max", "memory.current"),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


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
    trim_freed_memory()


def return_garbage() -> None:
    """Return what large requests leave behind: errors refer to what was read, and to themselves."""
    gc.collect()
    trim_freed_memory()


def trim_freed_memory() -> None:
    """Return freed memory to the system, once. Does nothing without glibc."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def prepare_for_serving() -> None:
    """Called once, before threads and models: memory that many requests freed can then be returned to the system, from
    two heaps instead of one a thread, and collecting garbage takes milliseconds, because it skips the libraries."""
    gc.freeze()
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).mallopt(ARENAS, 2)


def heap_peak(events: Iterable[tuple[int, int]]) -> int:
    """Bytes by which glibc's heap grows when tensors are allocated, (number, bytes), and freed, (number, -1), in this
    order after `keep_freed_memory`. A block is taken from the smallest free one in which it fits together with `SLACK`
    for its alignment, so a freed block does not serve another of its size; neighbouring free blocks are joined."""
    used: dict[int, tuple[int, int]] = {}  # address and size by number
    free = list[tuple[int, int]]()  # (size, address), sorted
    starts, ends = dict[int, int](), dict[int, int]()  # size of a free block by its first address, address by its end
    top = mapped = peak = 0

    def put(address: int, size: int) -> None:
        bisect.insort(free, (size, address))
        starts[address], ends[address + size] = size, address

    def take(address: int) -> int:
        size = starts.pop(address)
        del ends[address + size]
        free.pop(bisect.bisect_left(free, (size, address)))
        return size

    for number, size in events:
        if size >= LARGE:
            used[number] = (-1, size)
            mapped += size
        elif size >= 0:
            size = -(-size // ALIGNMENT) * ALIGNMENT
            place = bisect.bisect_left(free, (size + SLACK, 0))
            if place == len(free):
                address, top = top, top + size
            else:
                address = free[place][1]
                if rest := take(address) - size:
                    put(address + size, rest)
            used[number] = (address, size)
        else:
            address, size = used.pop(number)
            if address < 0:
                mapped -= size
                continue
            size += take(address + size) if address + size in starts else 0
            if address in ends:
                address = ends[address]
                size += take(address)
            if address + size == top:
                top = address
            else:
                put(address, size)
        peak = max(peak, top + mapped)
    return peak


def peak_memory() -> int | None:
    """The largest resident memory of this process so far, in bytes; None if the system does not report it."""
    try:
        import resource
    except ImportError:
        return _kibibytes("/proc/self/status", "VmHWM:")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, others kibibytes


def resident_memory() -> int | None:
    """The resident memory of this process now, in bytes; None if the system does not report it."""
    return _kibibytes("/proc/self/status", "VmRSS:")


def available_memory() -> int | None:
    """Bytes that this process could still allocate: what the machine has available, within the limit of the container;
    None if the system does not report it."""
    found = [_kibibytes("/proc/meminfo", "MemAvailable:"), *(_left_in_group(*names) for names in GROUPS)]
    return min((size for size in found if size is not None), default=None)


def _left_in_group(folder: str, limit: str, usage: str) -> int | None:
    """What a control group may still allocate. Its cache of files is given up first, so it does not count."""
    try:
        most, used = (int(_lines(f"{folder}/{name}")[0]) for name in (limit, usage))
    except (IndexError, ValueError):  # another version of control groups, or "max": no limit
        return None
    stat = (line.split() for line in _lines(f"{folder}/memory.stat"))
    return max(0, most - used + next((int(entry[1]) for entry in stat if entry[0] == "inactive_file"), 0))


def _kibibytes(file: str, name: str) -> int | None:
    """An entry of a file of /proc, in bytes."""
    return next((int(line.split()[1]) * 1024 for line in _lines(file) if line.startswith(name)), None)


def _lines(file: str) -> list[str]:
    """Of a file of the system; none if there is no such file."""
    try:
        return Path(file).read_text().splitlines()
    except OSError:
        return []
