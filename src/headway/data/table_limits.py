"""Refuses binary tables (Parquet, workbooks) that unpack to far more than they are, as `text_reader` does for gzip.

What such a file declares is compared with its size; then it is read in a process of limited memory and time
(table_sandbox.py), because what it declares need not be true and its decoders are written in C.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from headway.data.paths import ArchivePath, SheetPath, size_of
from headway.data.text_reader import ReadLimits
from headway.errors import DataError
from headway.limited_process import CrashError, KeptProcess, LimitError
from headway.printable import printable

SANDBOX = KeptProcess(Path(__file__).with_name("table_sandbox.py"), memory=1 << 30)
MEMORY_FACTOR = 2  # bytes of memory for each of the file, beyond the gigabyte for any
SECONDS, BYTES_PER_SECOND = 15, 1 << 17  # CPU time for any file, and a second more for each so many bytes


def refuse_ratio(path: Path, unpacked: int, limits: ReadLimits) -> None:
    """DataError if a file of that many bytes when unpacked is more than the limits allow for its size."""
    if unpacked > most_unpacked(size_of(path), limits):
        raise DataError(
            f"{path}: unpacks to over {unpacked:,} bytes from {size_of(path):,}, more than "
            f"{limits.unpack_ratio} times. If you trust it, save it as CSV."
        )


def most_unpacked(size: int, limits: ReadLimits) -> int:
    return max(limits.unpack_free, limits.unpack_ratio * size)


def try_table(path: Path, kind: str, *, rows: int, limits: ReadLimits) -> str:
    """What is wrong with the file as its reader says, if it is damaged; DataError if reading it takes more memory or
    time than the limits. `rows`: how many are decoded at once."""
    file = path.workbook if isinstance(path, SheetPath) else path
    archive = file.archive if isinstance(file, ArchivePath) else None
    inside = None if archive is None else file.relative_to(archive).as_posix()
    state = Path(archive or file).stat()
    return _try(
        path, str(Path(archive or file).absolute()), inside, kind, rows, limits, size_of(file), state.st_mtime_ns
    )


@lru_cache(maxsize=64)
def _try(
    path: Path, file: str, inside: str | None, kind: str, rows: int, limits: ReadLimits, size: int, modified: int
) -> str:
    most = most_unpacked(size, limits)
    request = {"path": file, "inside": inside, "kind": kind, "rows": rows, "most": most}
    try:
        found = SANDBOX.run(request, seconds=SECONDS + size // BYTES_PER_SECOND, more_memory=MEMORY_FACTOR * size)
    except (LimitError, CrashError) as error:
        reason = "memory or time" if isinstance(error, LimitError) else printable(str(error))
        raise DataError(f"{path}: {_too_large(size, reason)}") from None
    if found.get("refused") == "ratio":
        refuse_ratio(path, most + 1, limits)
    if found.get("refused"):
        SANDBOX.close()  # its memory
        raise DataError(f"{path}: {_too_large(size, found['refused'])}")
    return str(found.get("damaged", ""))


def _too_large(size: int, reason: str) -> str:
    return (
        f"reading its {size:,} bytes was stopped ({reason}): it unpacks to far more than it is, or it is damaged. "
        "If you trust it, save it as CSV"
    )
