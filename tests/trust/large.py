"""`make trust-large`: a corpus larger than the memory it may take is prepared, killed half-way, and resumed.

python tests/trust/large.py --gigabytes 5
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

PREPARING = Path(__file__).resolve().parents[1] / "support" / "preparing.py"
LINES = 15_000  # of a block, about a megabyte


def write_corpus(path: Path, size: int) -> None:
    """Made-up words by Zipf's law, in sentences and lines; 64 blocks in ever new order."""
    random = Random(0)
    parts = ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu", "an", "er", "in", "os", "ul"]
    words = ["".join(random.choices(parts, k=random.randint(1, 4))) for _ in range(20_000)]
    zipf = list(accumulate(1 / (rank + 1) for rank in range(len(words))))
    blocks = []
    for _ in range(64):
        lines = [" ".join(random.choices(words, cum_weights=zipf, k=12)) + ".\n" for _ in range(LINES)]
        blocks.append("".join(lines).encode())
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(random.choice(blocks))


def prepare(corpus: Path, folder: Path, *more: str) -> dict[str, Any] | None:
    """What the process measured; None if it was killed."""
    command = [sys.executable, str(PREPARING), str(corpus), str(folder), "--real", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--cap", type=int, default=1024, help="megabytes the process may add to what it begins with")
    parser.add_argument("--folder", type=Path, default=Path("runs/large"))
    given = parser.parse_args()
    shutil.rmtree(given.folder, ignore_errors=True)
    given.folder.mkdir(parents=True)
    corpus, store = given.folder / "corpus.txt", given.folder / "store"
    write_corpus(corpus, int(given.gigabytes * 2**30))
    half = int(corpus.stat().st_size * 0.45 / 16_500)  # pieces are a little over 16 KB
    killed = prepare(corpus, store, "--kill-at", str(half))
    done = prepare(corpus, store)
    if killed is not None or done is None:
        print("failed: " + ("it was not killed" if killed is not None else "it did not come to its end"))
        return 1
    print(f"corpus          {corpus.stat().st_size / 2**30:.2f} GiB in one file")
    print(f"killed at       example {half:,}; resumed from {done['begun_at']:,}")
    print(f"prepared        {done['examples']:,} examples, {done['values']:,} tokens")
    print(f"second process  {done['seconds']:,} s, of which the vocabulary {done['vocabulary_seconds']:,} s")
    print(f"memory          {done['megabytes']:,} MB above its beginning (cap {given.cap:,} MB)")
    sound = done["begun_at"] > 0.8 * half and done["megabytes"] < given.cap
    shutil.rmtree(given.folder)
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
