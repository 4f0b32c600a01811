"""`make torture`: every fault repeatedly with different random numbers, for a given time; prints a table."""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from serving import attacks
from torture.faults import AT_ANY_CALL, FAULTS
from torture.real_task import real_task
from torture.trials import NotPossibleError, Trial


def hostile_requests(stream: random.Random, folder: Path) -> Trial:
    reports = attacks.hostile_requests(stream, folder)
    for report in reports:
        assert not (found := report.problems()), (found, report.text())
    return Trial(times=sum(report.statuses.total() for report in reports))


ALL = {
    **FAULTS,
    **AT_ANY_CALL,
    "SIGKILL 20 times in a real task": real_task,
    "hostile requests to a server": hostile_requests,
}


@dataclass
class Row:
    trials: int = 0
    times: int = 0
    lost: int = 0
    failures: list[str] = field(default_factory=list)
    impossible: str = ""

    @property
    def result(self) -> str:
        if self.impossible:
            return f"not possible here: {self.impossible}"
        return f"{len(self.failures)} of {self.trials} FAILED" if self.failures else "passed"


def table(rows: dict[str, Row]) -> list[str]:
    head = ["| fault | times | most steps lost to one | result |", "|---|---:|---:|---|"]
    return head + [f"| {name} | {row.times} | {row.lost} | {row.result} |" for name, row in rows.items() if row.trials]


def attempt(name: str, *, seed: int, round_: int, row: Row) -> None:
    stream = random.Random(f"{seed} {round_} {name}")
    row.trials += 1
    with TemporaryDirectory(prefix="torture-") as folder:
        try:
            trial = ALL[name](stream, Path(folder))
            row.times += trial.times
            row.lost = max(row.lost, trial.lost)
        except NotPossibleError as reason:
            row.impossible = str(reason)
        except AssertionError as failure:
            row.times += 1
            row.failures.append(f"{name}, round {round_}: {failure}")
            print(f"FAILED {row.failures[-1]}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", default="", help="faults whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    rows = {name: Row() for name in ALL if options.only in name}
    began = time.monotonic()
    spent = Counter[str]()
    for round_ in itertools.count():
        for name, row in rows.items():
            if time.monotonic() - began > options.minutes * 60 and round_:
                break
            # what takes long comes seldom: no fault has more than twice its share of the time
            if spent[name] * len(rows) > 2 * (time.monotonic() - began) or row.impossible:
                continue
            start = time.monotonic()
            attempt(name, seed=options.seed, round_=round_, row=row)
            spent[name] += time.monotonic() - start  # type: ignore[assignment]
        else:
            print(f"round {round_}: {sum(row.trials for row in rows.values())} trials", flush=True)
            continue
        break
    print("\n".join(["", *table(rows), ""]))
    minutes = (time.monotonic() - began) / 60
    trials, failed = (sum(row.trials for row in rows.values()), sum(len(row.failures) for row in rows.values()))
    print(f"{trials} trials in {minutes:.1f} minutes, seed {options.seed}, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
