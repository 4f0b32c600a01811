"""Spoken digits (FSDD) as transcription, from scratch: the plain command and a time limit.

    python -m benchmarks.spoken_digits RECORDINGS [--minutes 10]                   the official test part: n < 5
    python -m benchmarks.spoken_digits RECORDINGS --speaker theo --speaker lucas   each left out of training
    python -m benchmarks.spoken_digits RECORDINGS --tune                           judged on 5 <= n < 10, n < 5 unused

RECORDINGS has files `{digit}_{speaker}_{n}.wav`; the text of each is its digit in letters. Makes the tables, trains by
`headway train transcribe TABLE.csv --minutes N`, and prints the share of the judged recordings without an error.
"""

from __future__ import annotations

import argparse
import csv
import json
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from headway import jobs
from headway.loading import load

WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
TEST, TUNE = range(5), range(5, 10)  # n


@dataclass(frozen=True)
class Recording:
    path: Path
    digit: int
    speaker: str
    number: int

    @property
    def text(self) -> str:
        return WORDS[self.digit]


def recordings(folder: Path) -> list[Recording]:
    found = []
    for path in sorted(folder.glob("*.wav")):
        digit, speaker, number = path.stem.split("_")
        found.append(Recording(path.resolve(), int(digit), speaker, int(number)))
    return found


def write_table(path: Path, part: Iterable[Recording]) -> Path:
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["audio", "text"])
        rows.writerows((each.path, each.text) for each in part)
    return path


def judged(
    name: str, every: list[Recording], *, held: Callable[[Recording], bool], used: Callable[[Recording], bool],
    length: dict[str, float], out: Path | None, settings: dict[str, object],
) -> float:  # fmt: skip
    """Trains on what is `used` and not `held`; the share of the held recordings whose text has no error."""
    with tempfile.TemporaryDirectory() as scratch:
        train = write_table(Path(scratch) / "train.csv", (each for each in every if used(each) and not held(each)))
        test = write_table(Path(scratch) / "judged.csv", (each for each in every if held(each)))
        run = (out or Path(scratch)) / name
        began = time.perf_counter()
        jobs.train("transcribe", train, **length, out=run, settings=settings, say=lambda line: print(line, flush=True))
        seconds = time.perf_counter() - began
        scores = jobs.evaluate(load(run), test)
        log = [json.loads(line) for line in (run / "training" / "metrics.jsonl").read_text().splitlines()]
        waiting = [entry["waiting"] for entry in log if "waiting" in entry]
        print(
            f"{name}: exact {scores['exact']:.1%}  wer {scores['wer']:.3f}  in {seconds / 60:.1f} min; "
            f"waiting for data {sum(waiting) / max(1, len(waiting)):.1%}",
            flush=True,
        )
    return scores["exact"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--steps", type=int, help="in place of --minutes")
    parser.add_argument("--speaker", action="append", default=[], help="left out of training; may be repeated")
    parser.add_argument("--tune", action="store_true", help="judge on a part of the training recordings")
    parser.add_argument("--out", type=Path, help="keep the run folders here")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="as of headway train")
    options = parser.parse_args()
    every = recordings(options.folder)
    settings = {name: json.loads(value) for name, _, value in (each.partition("=") for each in options.set)}
    length = {"steps": options.steps} if options.steps else {"minutes": options.minutes}
    common = {"length": length, "out": options.out, "settings": settings}
    if options.speaker:
        found = [
            judged(
                f"without-{speaker}", every, held=lambda each, who=speaker: each.speaker == who,
                used=lambda each: not options.tune or each.number not in TEST, **common,
            )
            for speaker in options.speaker
        ]  # fmt: skip
    else:
        judge = TUNE if options.tune else TEST
        part = [each for each in every if not options.tune or each.number not in TEST]
        found = [judged("tune" if options.tune else "test", part, held=lambda each: each.number in judge,
                        used=lambda each: True, **common)]  # fmt: skip
    print(f"exact, mean of {len(found)}: {sum(found) / len(found):.2%}")


if __name__ == "__main__":
    main()
