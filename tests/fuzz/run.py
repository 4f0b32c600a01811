"""`make fuzz`: all targets in rounds, in a process apart, so that even an abort is counted and its input kept.

PYTHONPATH=tests python -m fuzz.run --inputs 1000000 --seed 1
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

CRASHES = Path("runs/fuzz")  # inputs that crashed something, one file a fault
ROUND = 25_000  # inputs; each round begins again with the seeds
COLUMNS = ("inputs", "refused", "read", "seconds", "faults")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all, shared out over the targets")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--only", nargs="*", default=[], help="names of targets")
    parser.add_argument("--done", type=int, default=0, help=argparse.SUPPRESS)  # of the child: campaigns to pass over
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    CRASHES.mkdir(parents=True, exist_ok=True)
    if given.child:
        return child(given.inputs, given.seed, only=given.only, done=given.done)
    print(f"seed {given.seed}", flush=True)
    sums: dict[str, Counter[str]] = {}
    try:
        parent(given.inputs, given.seed, only=given.only, sums=sums)
    except KeyboardInterrupt:
        print("interrupted; so far:")
    return show(sums)


def parent(inputs: int, seed: int, *, only: list[str], sums: dict[str, Counter[str]]) -> None:
    """Adds up what the child says. When it dies, another goes on with the next campaign."""
    done, alive = 0, False
    while not alive:
        command = [sys.executable, "-m", "fuzz.run", "--child", "--inputs", str(inputs), "--seed", str(seed)]
        command += ["--done", str(done), "--only", *only]
        name = ""
        with (CRASHES / "stderr.txt").open("ab") as log, subprocess.Popen(command, stdout=-1, stderr=log) as process:
            assert process.stdout is not None
            for line in process.stdout:
                found = json.loads(line)
                name, done = found["target"], found["number"]
                if "inputs" not in found:  # it has begun
                    continue
                for fault in found["faults"]:
                    print(f"{name}: {fault}", flush=True)
                counts = {column: found[column] for column in COLUMNS[:-1]} | {"faults": len(found["faults"])}
                sums.setdefault(name, Counter()).update(counts)
                if found["last"]:
                    print(f"{sum(each['inputs'] for each in sums.values()):,} inputs", flush=True)
        alive = process.returncode == 0
        if not alive:
            said = (CRASHES / "stderr.txt").read_text(errors="replace").strip().splitlines()[-1:]
            print(
                f"{name}: died with exit code {process.returncode}, {said}; its last input is in {CRASHES}", flush=True
            )
            sums.setdefault(name, Counter()).update({"faults": 1})


def show(sums: dict[str, Counter[str]]) -> int:
    print(f"{'target':<18}" + "".join(f"{name:>11}" for name in COLUMNS))
    whole: Counter[str] = sum(sums.values(), Counter())
    for name, counts in {**sums, "in all": whole}.items():
        print(f"{name:<18}" + "".join(f"{round(counts[column]):>11,}" for column in COLUMNS))
    return min(whole["faults"], 1)


def child(inputs: int, seed: int, *, only: list[str], done: int) -> int:
    from fuzz.campaign import fire
    from fuzz.targets import TARGETS

    chosen = [target for target in TARGETS if not only or target.name in only]
    whole = sum(target.share for target in chosen)
    rounds = -(-inputs // ROUND)
    plan = [(turn, target) for turn in range(rounds) for target in chosen]
    for number, (turn, target) in enumerate(plan, 1):
        if number <= done:
            continue
        told: dict[str, Any] = {"target": target.name, "number": number}
        print(json.dumps(told), flush=True)
        outcome = fire(target, inputs=round(inputs / rounds * target.share / whole), seed=seed + turn, folder=CRASHES)
        for position, crash in enumerate(outcome.crashes.values()):
            (CRASHES / f"{target.name}-{turn}-{position}").write_bytes(crash.data)
            (CRASHES / f"{target.name}-{turn}-{position}.txt").write_text(crash.trace)
        told |= {column: getattr(outcome, column) for column in COLUMNS[:-1]}
        told |= {"faults": list(outcome.crashes), "last": target is chosen[-1]}
        print(json.dumps(told), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
