"""Pictures by the plain commands: the built-in shapes, Fashion-MNIST, and drawing Fashion-MNIST from its captions.

    python -m benchmarks.images DATA-FOLDER [shapes fashion draw] [--minutes 20] [--out FOLDER]

DATA-FOLDER has fashion-mnist/ with the four idx files. `--minutes` is the time of each training (default: none for the
shapes, 20 for Fashion-MNIST, 30 for drawing). Scores are those of `headway evaluate` on the test part. `waiting` is the
share of training time in which the step waits for pictures; CPU seconds are of the whole training, so a run beside
other work can be compared with one alone.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.timing import use_threads
from headway import jobs
from headway.jobs.inference import evaluation

RUNS: dict[str, tuple[str, str | None, float | None]] = {  # task, data, minutes
    "shapes": ("classify-image", None, None),
    "fashion": ("classify-image", "fashion-mnist", 20.0),
    "draw": ("draw", "fashion-mnist", 30.0),
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("runs", nargs="*", help=", ".join(RUNS))
    parser.add_argument("--minutes", type=float, help="of each training")
    parser.add_argument("--out", type=Path, help="keeps the run folders")
    options = parser.parse_args()
    if unknown := set(options.runs) - set(RUNS):
        parser.error(f"unknown: {', '.join(unknown)}; choose from {', '.join(RUNS)}")
    use_threads()
    with tempfile.TemporaryDirectory() as folder:
        for name in options.runs or RUNS:
            measure(name, options.data, (options.out or Path(folder)) / name, minutes=options.minutes)


def measure(name: str, data: Path, out: Path, *, minutes: float | None) -> None:
    task, files, usual = RUNS[name]
    path = None if files is None else data / files
    began = cpu_seconds()
    trained = jobs.train(task, path, out=out, minutes=minutes or usual)
    used = cpu_seconds() - began
    model = sum(parameter.numel() for parameter in trained.bundle.model.parameters())
    print(
        f"{name}: {trained.result.steps:,} steps in {trained.result.seconds / 60:.1f} minutes, {used:,.0f} CPU seconds"
    )
    print(f"  {model:,} parameters; waiting for pictures {waiting(out):.1%}", flush=True)
    found = evaluation(out, path, say=lambda line: print(f"  {line}", flush=True))
    for score, value in found.scores.items():
        print(f"  {score:<18} {value:.4f}")
    print(f"  on {found.examples:,} examples of {found.data}", flush=True)


def waiting(run: Path) -> float:
    """The mean over the log of a run."""
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (run / "training/metrics.jsonl").read_text().splitlines()
    ]
    shares = [line["waiting"] for line in lines if "waiting" in line]
    return sum(shares) / len(shares)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
