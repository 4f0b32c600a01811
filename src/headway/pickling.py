"""A bundle as bytes for Python's own pickle (joblib, multiprocessing, cloudpickle): the files that `Bundle.save`
writes, opened again by `load`. Headway itself reads and writes no pickles."""

from __future__ import annotations

import tempfile
from pathlib import Path

from headway.bundle import Bundle
from headway.loading import load

Files = dict[str, bytes]  # by their path in the folder


def saved_files(bundle: Bundle) -> Files:
    with _scratch() as folder:
        bundle.write_files(Path(folder))
        files = [path for path in Path(folder).rglob("*") if path.is_file()]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def unpickled(files: Files, folder: Path | None, device: str) -> Bundle:
    """`folder` is where the bundle was loaded from, which may be no more."""
    with _scratch() as copy:
        for name, content in files.items():
            path = Path(copy, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        bundle = load(copy, device=device)
    bundle.folder = folder
    return bundle


def _scratch() -> tempfile.TemporaryDirectory[str]:
    """Weights stay mapped into memory from their file, which Windows then does not let go."""
    return tempfile.TemporaryDirectory(prefix="headway-", ignore_cleanup_errors=True)
