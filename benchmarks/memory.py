"""Peak memory of training against batch × length: each point is a process of its own that takes three steps.

    python -m benchmarks.memory

The last line is the share of the variation that a straight line in batch × length explains.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np

POINTS = [(4, 64), (8, 64), (8, 128), (16, 128), (32, 128), (16, 256), (32, 256)]
CHILD = """
import sys, resource, torch
from headway.models.build import build
from headway.models.recipes import Size, decoder
batch, length = int(sys.argv[1]), int(sys.argv[2])
model = build(decoder(Size(width=128, layers=4, heads=4), "modern", vocab=256, context=length))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for _ in range(3):
    ids = torch.randint(0, 256, (batch, length))
    model(ids).logits.logsumexp(-1).sum().backward()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def main() -> None:
    sizes, peaks = [], []
    for batch, length in POINTS:
        done = subprocess.run(
            [sys.executable, "-c", CHILD, str(batch), str(length)], capture_output=True, text=True, check=True
        )
        sizes.append(batch * length)
        peaks.append(int(done.stdout) / 1024)
        print(
            f"batch {batch:3} × length {length:4} = {sizes[-1]:5} tokens   {peaks[-1]:7.1f} MiB above the model",
            flush=True,
        )
    slope, base = np.polyfit(sizes, peaks, 1)
    explained = np.corrcoef(sizes, peaks)[0, 1] ** 2
    print(f"{slope * 1024:.1f} KiB a token + {base:.0f} MiB")
    print(f"ratio explained by a straight line {explained:.3f}")


if __name__ == "__main__":
    main()
