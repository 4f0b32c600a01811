"""What safety costs: the time of a save and of its checksums, and the share of a training run that is at
the default interval. `python -m benchmarks.endure [--sizes tiny small base]`"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from headway.jobs import make_plan, open_data
from headway.jobs.training import begin
from headway.train import rng
from headway.train.optim import build_optimizers
from headway.train.pace import SHARE
from headway.train.settings import Settings, interval
from headway.train.state import State, save_state, sha256, verify

DEFAULT = interval("save_every", Settings(steps=1).save_every)[1]  # seconds


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The best time."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)


def state_of(size: str) -> State:
    """What a run of `headway train generate` saves after a step: weights and optimiser, random streams."""
    plan = make_plan("generate", size=size)
    settings = plan.settings()
    model = begin(plan, open_data(plan)).model
    optimizers = build_optimizers(model, kind=settings.optimizer, lr=settings.lr)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step()
    return {"model": model.state_dict(), "optimizer": optimizers.state_dict(), "ranks": [{"rng": rng.capture()}]}


def measure(size: str, folder: Path, *, repeats: int) -> str:
    """One line of the table."""
    state = state_of(size)
    path = save_state(folder, 1, state, keep=2)
    files = list(path.iterdir())
    size_on_disk = sum(file.stat().st_size for file in files)
    parameters = sum(tensor.numel() for tensor in state["model"].values())
    save = seconds(lambda: save_state(folder, 2, state, keep=2), repeats)
    hashing = seconds(lambda: [sha256(file) for file in files], repeats)
    checking = seconds(lambda: verify(path), repeats)
    share = save / max(DEFAULT, save / SHARE)
    return (
        f"| {size} | {parameters / 1e6:.1f} M | {size_on_disk / 2**20:.0f} MiB | {save:.3f} s | {hashing:.3f} s | "
        f"{checking:.3f} s | {share:.2%} | {save / SHARE:.1f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "small", "base"])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| model | parameters | state | save | of it checksums | verify | share at {DEFAULT:.0f} s "
          f"| shortest interval at {SHARE:.0%} |")  # fmt: skip
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            print(measure(size, Path(folder), repeats=options.repeats), flush=True)


if __name__ == "__main__":
    main()
