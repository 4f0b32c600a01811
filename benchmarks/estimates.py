"""Time told by `headway check` beside the time that training takes, and the time of the check itself.

    python -m benchmarks.estimates DATA [--start MODEL] [--steps 60]

DATA is a folder with sst2, trec, multi30k, wnut17 and tinyshakespeare. Each row trains STEPS steps by the settings that
the check describes, in a process of its own; the first tenth of the steps is left out. Needs otherwise free cores.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HEADWAY = [sys.executable, "-m", "headway"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--start", help="an encoder, for a row of fine-tuning")
    parser.add_argument("--steps", type=int, default=60)
    given = parser.parse_args()
    print(f"{'':<28}{'check':>9}{'told':>12}{'measured':>12}{'ratio':>8}")
    worst = 1.0
    for name, command in rows(given.data, given.start):
        began = time.perf_counter()
        report = json.loads(run("check", *command, "--json"))
        checked, told = time.perf_counter() - began, report["estimates"]["step_seconds"]
        measured = step_seconds(command, given.steps)
        worst = max(worst, told / measured, measured / told)
        print(f"{name:<28}{checked:>7.1f} s{told:>10.4f} s{measured:>10.4f} s{told / measured:>8.2f}", flush=True)
    print(f"ratio {worst:.2f} (the worst of told ÷ measured and its inverse)")


def rows(data: Path, start: str | None) -> list[tuple[str, list[str]]]:
    found = [
        ("classify, SST-2", ["classify", str(data / "sst2" / "train.tsv")]),
        ("tag, WNUT-17", ["tag", str(data / "wnut17" / "train.conll")]),
        (
            "translate, Multi30k",
            ["translate", str(data / "multi30k" / "train.en"), str(data / "multi30k" / "train.de")],
        ),
        ("generate, Shakespeare", ["generate", str(data / "tinyshakespeare" / "input.txt")]),
    ]
    if start:
        trec = ["classify", str(data / "trec" / "train.txt"), "--encoding", "latin-1"]
        found.append(("classify, TREC, fine-tuned", [*trec, "--start", start]))
    return found


def run(*command: str) -> str:
    return subprocess.run([*HEADWAY, *command], check=True, capture_output=True, text=True).stdout


def step_seconds(command: list[str], steps: int) -> float:
    """Of the steps after the first tenth, from the log."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = ("--set", "eval_every=0", "--set", "save_every=0", "--set", "log_every=1")
        run("train", *command, "--steps", str(steps), *settings, "--out", str(out))
        lines = [json.loads(line) for line in (out / "training" / "metrics.jsonl").read_text().splitlines()]
    logged = [(line["step"], line["seconds"]) for line in lines if "loss" in line]
    (first, start), (last, end) = logged[max(1, steps // 10)], logged[-1]
    return (end - start) / (last - first)


if __name__ == "__main__":
    main()
