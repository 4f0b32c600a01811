"""What safety costs, as the tables of dev/LOG.md: a state saved and checked; a training that saves against the same
one that does not; a training by two processes against one.

    python -m benchmarks.endure [--repeats 3] [--seconds 60] [--sizes tiny small base] [--trained tiny small]

`--seconds` is about what each of the trainings takes: the longer, the more saves it has. There are two for every repeat
and model of `--trained`, and then three.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from headway.files import sha256
from headway.jobs import make_plan, open_data
from headway.jobs.preparation import initial_bundle, make_source
from headway.jobs.run_config import facts_of
from headway.training import loop, rng
from headway.training.intervals import SAVE_TIME_SHARE
from headway.training.optim import build_optimizers
from headway.training.settings import Settings, interval
from headway.training.state import State, save_state, verify

DEFAULT = interval("save_every", Settings(steps=1).save_every)[1]  # seconds
WARM = 3  # steps before the clock starts
NEVER = "100000s"  # but at the end, after the clock
OFTEN = "1s"  # asked for so often, states come as often as 3% of the time allows
PROCESSES = {  # name → threads, processes
    "1 process, 1 thread": (1, 1),
    "1 process, 2 threads": (2, 1),
    "2 processes, 1 thread each": (1, 2),
}


def seconds(job: Callable[[], object], repeats: int) -> float:
    """The best time."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)


def table(*columns: str) -> None:
    print("\n| " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * (len(columns) - 1), flush=True)


# a state


def state_of(size: str) -> State:
    """What a run of `headway train generate` saves after a step: weights and optimiser, random streams."""
    plan = make_plan("generate", size=size)
    settings = plan.settings()
    model = initial_bundle(plan, facts_of(plan, open_data(plan))).model
    optimizers = build_optimizers(model, kind=settings.optimizer, lr=settings.lr)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizers.step()
    return {"model": model.state_dict(), "optimizer": optimizers.state_dict(), "ranks": [{"rng": rng.capture()}]}


def a_save(size: str, folder: Path, *, repeats: int) -> str:
    state = state_of(size)
    path = save_state(folder, 1, state, keep=2)
    files = list(path.iterdir())
    size_on_disk = sum(file.stat().st_size for file in files)
    parameters = sum(tensor.numel() for tensor in state["model"].values())
    save = seconds(lambda: save_state(folder, 2, state, keep=2), repeats)
    hashing = seconds(lambda: [sha256(file) for file in files], repeats)
    checking = seconds(lambda: verify(path), repeats)
    share = save / max(DEFAULT, save / SAVE_TIME_SHARE)
    return (
        f"| {size} | {parameters / 1e6:.1f} M | {size_on_disk / 2**20:.0f} MiB | {save:.3f} s | {hashing:.3f} s | "
        f"{checking:.3f} s | {share:.2%} | {save / SAVE_TIME_SHARE:.1f} s |"
    )


# a training


class Clock:
    """When a run began, not counting its first steps, and when it made its last; what it spent on saving in between."""

    def __init__(self) -> None:
        self.began = self.ended = 0.0
        self.saves: list[float] = []
        save = loop.TrainingRun.save

        def timed(run: Any) -> None:
            start = time.perf_counter()
            save(run)
            if run.saved == run.status.step and WARM < run.status.step < run.status.steps:
                self.saves.append(time.perf_counter() - start)

        loop.TrainingRun.save = timed  # type: ignore[method-assign]

    def on_step(self, status: Any) -> None:
        if status.step == WARM:
            self.began = time.perf_counter()
        self.ended = time.perf_counter()


def train(size: str, *, steps: int, save_every: str, out: Path) -> None:
    """In a process of its own, or one of several: `headway train generate` without its evaluations."""
    plan = make_plan("generate", size=size, steps=steps, settings={"eval_every": 0, "save_every": save_every})
    data, clock = open_data(plan), Clock()
    bundle = initial_bundle(plan, facts_of(plan, data))
    with tempfile.TemporaryDirectory() as examples, tempfile.TemporaryDirectory() as folder:
        task, settings = bundle.find_task(), plan.settings()
        source = make_source(task, data, Path(examples), settings=settings, say=lambda _: None)
        place = out.with_suffix("") if "RANK" in os.environ else Path(folder)  # ranks share their run's folder
        loop.fit(bundle.model, source, loss=task.loss, settings=settings, folder=place, callbacks=[clock])
    if clock.began:  # the first rank alone is told
        told = {"seconds": clock.ended - clock.began, "saves": len(clock.saves), "saving": sum(clock.saves)}
        out.write_text(json.dumps({**told, "batch": settings.batch}))


def measured(
    size: str, *, steps: int, save_every: str = NEVER, threads: int = 1, processes: int = 1
) -> dict[str, float]:
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] * (processes > 1)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "told.json"
        command = [
            sys.executable,
            *launch,
            "-m",
            "benchmarks.endure",
            "--train",
            size,
            str(steps),
            save_every,
            str(out),
        ]
        env = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        return dict(json.loads(out.read_text()))


def steps_for(size: str, budget: float, *, threads: int) -> int:
    """As many as take about so many seconds, and at least ten."""
    tried = measured(size, steps=WARM + 5, threads=threads)
    return WARM + max(10, round(budget / (tried["seconds"] / 5)))


def with_saves(size: str, *, budget: float, repeats: int, threads: int) -> str:
    """The two trainings take turns, so that a noisy moment meets both."""
    steps = steps_for(size, budget, threads=threads)
    without, saving = [], []
    for _ in range(repeats):
        without.append(measured(size, steps=steps, threads=threads)["seconds"])
        saving.append(measured(size, steps=steps, save_every=OFTEN, threads=threads))
    plain, best = min(without), min(saving, key=lambda one: one["seconds"])
    return (
        f"| {size} | {steps - WARM:,} | {plain:.1f} s | {best['seconds']:.1f} s | {best['saves']} | "
        f"{best['saving'] / best['seconds']:.2%} | {best['seconds'] / plain - 1:+.2%} |"
    )


def by_processes(size: str, *, budget: float, repeats: int) -> str:
    """Steps of the same batch, over all processes."""
    steps = steps_for(size, budget, threads=1)
    best: dict[str, float] = {}
    batch = 0
    for _ in range(repeats):
        for name, (threads, processes) in PROCESSES.items():
            told = measured(size, steps=steps, threads=threads, processes=processes)
            best[name] = min(best.get(name, told["seconds"]), told["seconds"])
            batch = int(told["batch"])
    times = " | ".join(f"{1e3 * best[name] / (steps - WARM):.0f} ms" for name in PROCESSES)
    one, two, spread = best.values()
    return f"| {size} | {batch} | {times} | {one / spread:.2f}× | {two / spread:.2f}× |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "small", "base"])
    parser.add_argument("--trained", nargs="+", default=["tiny", "small"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--train", nargs=4, metavar=("SIZE", "STEPS", "SAVE_EVERY", "OUT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", 1)))
    if options.train:
        size, steps, save_every, out = options.train
        train(size, steps=int(steps), save_every=save_every, out=Path(out))
        return
    shortest = f"shortest interval at {SAVE_TIME_SHARE:.0%}"
    table("model", "parameters", "state", "save", "of it checksums", "verify", f"share at {DEFAULT:.0f} s", shortest)
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            print(a_save(size, Path(folder), repeats=options.repeats), flush=True)
    table("model", "steps", "without states", "with", "states", "time spent on them", "longer by")
    for size in options.trained:
        print(with_saves(size, budget=options.seconds, repeats=options.repeats, threads=1), flush=True)
    gains = ("two processes against one thread", "against two threads")
    table("model", "global batch", *(f"a step, {name}" for name in PROCESSES), *gains)
    for size in options.trained:
        print(by_processes(size, budget=options.seconds, repeats=options.repeats), flush=True)


if __name__ == "__main__":
    main()
