"""From the start of the process to the end of the first training step, and how often the data files are read.

    python -m benchmarks.first_step TASK DATA… [--tree FOLDER --tree FOLDER …] [--times N] [--set key=value]

Each tree is a checkout whose `src` is measured in fresh processes, in turns; the first is the baseline of the ratios.
`--times N` writes the data N times over into one file first. A pass is as many bytes as the data files have.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROBE = """
import builtins, io, json, os, sys, time
task, files, out, settings = json.loads(sys.argv[1])
watched, count = {os.path.realpath(file) for file in files}, [0]
open_file = io.open

class Counted(io.FileIO):
    def readinto(self, buffer):
        size = super().readinto(buffer)
        count[0] += size or 0
        return size
    def read(self, size=-1):
        data = super().read(size)
        count[0] += len(data or b"")
        return data
    def readall(self):
        data = super().readall()
        count[0] += len(data)
        return data

def counted_open(file, mode="r", *args, **options):
    if isinstance(file, (str, os.PathLike)) and "b" in mode and "r" in mode and os.path.realpath(file) in watched:
        return io.BufferedReader(Counted(file))
    return open_file(file, mode, *args, **options)

io.open = builtins.open = counted_open

class First:
    def __getattr__(self, name):
        return lambda *_: None
    def on_step(self, status):
        print(json.dumps([time.time(), count[0]]), flush=True)
        os._exit(0)

from headway import jobs
plan = jobs.make_plan(task, files, steps=2, settings=settings)
from pathlib import Path
jobs.run_plan(plan, Path(out), callbacks=[First()])
"""


def first_step(
    tree: Path, task: str, files: list[str], settings: dict[str, Any], *, bytecode: Path
) -> tuple[float, int]:
    """Seconds until the first step has ended, and bytes read of the data files. `bytecode` caches compiled modules."""
    with tempfile.TemporaryDirectory() as folder:
        given = json.dumps([task, files, str(Path(folder) / "run"), settings])
        began = time.time()
        environment = os.environ | {"PYTHONPATH": str(tree / "src"), "PYTHONPYCACHEPREFIX": str(bytecode)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        done = subprocess.run(
            [sys.executable, "-c", PROBE, given], capture_output=True, text=True, env=environment, cwd=folder
        )
        if done.returncode or not done.stdout:
            raise SystemExit(done.stderr or "the run ended before its first step")
        ended, read = json.loads(done.stdout.splitlines()[-1])
        return ended - began, read


def repeated(files: list[Path], times: int, folder: Path) -> list[Path]:
    """The content of each file, uncompressed, `times` over."""
    out = []
    for file in files:
        content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        name = file.name.removesuffix(".gz")
        out.append(folder / (name if "." in name else f"{name}.txt"))
        with out[-1].open("wb") as target:
            for _ in range(times):
                target.write(content)
    return out


def compile_modules(trees: list[Path], bytecode: Path) -> None:
    """A first step on built-in data, not timed, so that every tree finds its imports compiled."""
    code = PROBE.replace("jobs.make_plan(task, files,", "jobs.make_plan(task, None,")
    for tree in trees:
        environment = os.environ | {"PYTHONPATH": str(tree.resolve() / "src"), "PYTHONPYCACHEPREFIX": str(bytecode)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryDirectory() as folder:
            given = json.dumps(["classify", [], str(Path(folder) / "run"), {}])
            subprocess.run([sys.executable, "-c", code, given], check=True, capture_output=True, env=environment)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--tree", type=Path, action="append", help="default: this checkout")
    parser.add_argument("--times", type=int, default=0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    given = parser.parse_args()
    trees = given.tree or [Path(__file__).resolve().parents[1]]
    settings = {name: json.loads(value) for name, _, value in (pair.partition("=") for pair in given.settings)}
    with tempfile.TemporaryDirectory() as folder:
        bytecode = Path(folder) / "bytecode"
        compile_modules(trees, bytecode)
        files = repeated(given.data, given.times, Path(folder)) if given.times else given.data
        names, size = [str(file.resolve()) for file in files], sum(file.stat().st_size for file in files)
        seconds: dict[Path, list[float]] = {tree: [] for tree in trees}
        read: dict[Path, int] = {}
        for _ in range(given.repeats):
            for tree in trees:
                took, read[tree] = first_step(tree.resolve(), given.task, names, settings, bytecode=bytecode)
                seconds[tree].append(took)
    print(f"{given.task}, {size / 1e6:.1f} MB: seconds to the end of the first step, best (median) of {given.repeats}")
    for tree, times in seconds.items():
        ratio = min(seconds[trees[0]]) / min(times), statistics.median(seconds[trees[0]]) / statistics.median(times)
        print(
            f"{tree!s:<24} {min(times):7.1f} ({statistics.median(times):.1f}) s   {read[tree] / size:5.2f} passes   "
            f"{ratio[0]:.2f} ({ratio[1]:.2f}) times as fast as {trees[0]}"
        )


if __name__ == "__main__":
    main()
