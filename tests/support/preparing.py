"""A process that prepares a text file, to be measured and to be killed.

python tests/support/preparing.py CORPUS FOLDER [--kill-at EXAMPLES] [--real] [--progress-bytes BYTES]

It prints one JSON line: what it took and what came out. With --kill-at it ends by SIGKILL, as a power cut would.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway import tasks
from headway.data import store_writer
from headway.data.dataset import open_files
from headway.data.row import Row
from headway.data.truncation import TruncationCounter
from headway.files import sha256
from headway.tasks.batches import prepare


class Bytes:
    """The cheapest task: the bytes of a text are its tokens."""

    def __init__(self) -> None:
        self.truncation = TruncationCounter()

    def encode_ahead(self, rows: Sequence[Row]) -> None:
        pass

    def token_lengths(self, row: Row) -> dict[str, int]:
        return {"text": len(row.fields["text"])}

    def training_examples(self, row: Row) -> list[dict[str, np.ndarray]]:
        return [{"ids": np.frombuffer(row.fields["text"].encode(), np.uint8)}]


def peak() -> int:
    """Peak resident memory of this process in bytes (Linux)."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return 1024 * int(found[1])


def checksum(folder: Path) -> str:
    whole = hashlib.blake2b(digest_size=16)
    for path in sorted(folder.iterdir()):
        whole.update(f"{path.name} {sha256(path)}\n".encode())
    return whole.hexdigest()


def prepared(corpus: Path, folder: Path, *, kill_at: int | None, real: bool, progress_bytes: int) -> dict[str, Any]:
    """Prepares, measures, and is killed at example `kill_at`, if one is given."""
    store_writer.PROGRESS_BYTES = progress_bytes
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before, began = peak(), time.perf_counter()
    kind = tasks.find("generate")
    data = open_files(corpus, fields=kind.fields, columns={}, running=True)
    task: Any = kind.from_data(kind.scan(data.train()), tokenizer=None, options={}) if real else Bytes()
    vocabulary = time.perf_counter() - began
    counts: list[int] = []  # of examples, at the first row that was prepared and not only read again

    def progress(count: int) -> None:
        if not counts:
            counts.append(count)
        if kill_at is not None and count >= kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    store = prepare(task, data.train(), folder, key=data.fingerprint, progress=progress)
    return {
        "examples": len(store),
        "values": len(store.flat("ids")),
        "begun_at": counts[0] if counts else 0,
        "seconds": round(time.perf_counter() - began, 1),
        "vocabulary_seconds": round(vocabulary, 1),
        "megabytes": (peak() - before) >> 20,
        "checksum": checksum(folder),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill-at", type=int)
    parser.add_argument("--real", action="store_true", help="with the tokenizer of `generate`, learned from the corpus")
    parser.add_argument("--progress-bytes", type=int, default=store_writer.PROGRESS_BYTES)
    given = parser.parse_args()
    print(
        json.dumps(
            prepared(
                given.corpus, given.folder, kill_at=given.kill_at, real=given.real, progress_bytes=given.progress_bytes
            )
        )
    )


if __name__ == "__main__":
    main()
