"""What safety costs: the time of a save, of its checksums and of its flush, and the share of a training run that is at
the default interval. `python -m benchmarks.endure [--sizes tiny small base]`"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from headway.jobs import train
from headway.train.settings import Settings, interval
from headway.train.state import flush, load_state, save_state, sha256, states, verify

DEFAULT = interval("save_every", Settings(steps=1).save_every)[1]  # seconds
ALLOWED = 0.03


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The best time."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)


def measure(size: str, folder: Path, *, repeats: int) -> str:
    """One line: a run of two steps leaves a real state, which is then saved again and again."""
    settings = {"batch": 2, "task.context": 32, "eval_every": 0, "save_every": 0}
    train("generate", out=folder / "run", size=size, steps=2, settings=settings)
    path = states(folder / "run" / "training")[0]
    state, files = load_state(path), list(path.iterdir())
    size_on_disk = sum(file.stat().st_size for file in files)
    parameters = sum(tensor.numel() for tensor in state["model"].values())
    save = seconds(lambda: save_state(folder / "again", 1, state, keep=2), repeats)
    hashing = seconds(lambda: [sha256(file) for file in files], repeats)
    flushing = seconds(lambda: [flush(file) for file in files], repeats)
    checking = seconds(lambda: verify(path), repeats)
    share = save / (DEFAULT + save)
    return (
        f"| {size} | {parameters / 1e6:.1f} M | {size_on_disk / 2**20:.0f} MiB | {save:.3f} s | {hashing:.3f} s | "
        f"{flushing:.3f} s | {checking:.3f} s | {share:.2%} | {save / ALLOWED * (1 - ALLOWED):.1f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "small", "base"])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| model | parameters | state | save | of it checksums | flush again | verify | share at {DEFAULT:.0f} s "
          f"| shortest interval at {ALLOWED:.0%} |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(size, Path(folder), repeats=options.repeats), flush=True)


if __name__ == "__main__":
    main()
