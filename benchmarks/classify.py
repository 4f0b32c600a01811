"""Text classification from scratch: the plain command, each regulariser alone and together, and the classic baseline.

    python -m benchmarks.classify DATA-FOLDER [trec sst2] [--variants plain ngrams …] [--seeds 1] [--steps N] [--test]
    python -m benchmarks.classify --file reviews.tsv

Settings are chosen on a tenth that is split off the training file by a fixed permutation; the baseline is judged on the
same rows. `--test` trains on the whole training file and judges on the test file: once, for the variant that is kept.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import use_threads
from headway.jobs.training import train

SETS: dict[str, tuple[str, str, str]] = {  # training file, test file, encoding
    "trec": ("trec/train.txt", "trec/test.txt", "latin-1"),
    "sst2": ("sst2/train.tsv", "sst2/test.tsv", "utf-8"),
}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"task.ngrams": 0},
    "ngrams": {"task.ngrams": 2},
    "dropout": {"task.ngrams": 0, "model.dropout": 0.3},
    "smoothing": {"task.ngrams": 0, "task.label_smoothing": 0.1},
    "ema": {"task.ngrams": 0, "average": 0.99},
    "ngrams+smoothing": {"task.ngrams": 2, "task.label_smoothing": 0.1},
    "ngrams+dropout": {"task.ngrams": 2, "model.dropout": 0.3},
    "ngrams+dropout+smoothing+ema": {
        "task.ngrams": 2, "model.dropout": 0.3, "task.label_smoothing": 0.1, "average": 0.99,
    },
}  # fmt: skip


def split(path: Path, encoding: str, folder: Path) -> tuple[Path, Path]:
    """Nine tenths of the lines of a file, and the rest."""
    lines = path.read_text(encoding=encoding).rstrip("\n").split("\n")
    order, held = np.random.default_rng(0).permutation(len(lines)), len(lines) // 10
    parts = folder / f"train{path.suffix}", folder / f"held{path.suffix}"
    for part, chosen in zip(parts, (order[held:], order[:held]), strict=True):
        part.write_text("".join(lines[number] + "\n" for number in chosen), encoding="utf-8")
    return parts


def measured(files: tuple[Path, Path], encoding: str, settings: dict[str, Any], *, steps: int | None, seed: int) -> str:
    """Accuracy and loss of a run, and of the baseline beside it."""
    with tempfile.TemporaryDirectory() as out:
        trained = train(
            "classify", files[0], valid=files[1], encoding=encoding, out=Path(out) / "run", steps=steps, seed=seed,
            settings={"eval_every": 0, "save_every": 0, "log_every": 100, **settings},
        )  # fmt: skip
    classic = next((each for each in trained.baselines if "TF-IDF" in each.name), None)
    beside = "" if classic is None else f"{classic.scores['accuracy']:.4f}"
    return (
        f"{trained.scores['accuracy']:.4f} | {trained.scores['loss']:.3f} | {beside} | {trained.result.steps} | "
        f"{trained.result.seconds:.0f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the folder with trec and sst2")
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--file", type=Path, action="append", default=[], help="another training file, UTF-8")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--test", action="store_true")
    given = parser.parse_args()
    use_threads()
    names = (given.sets or list(SETS)) if given.folder else []
    if unknown := set(names) - set(SETS):
        parser.error(f"{', '.join(sorted(unknown))}: the sets are {', '.join(SETS)}")
    if given.test and given.file:
        parser.error("--test is for the sets that have a test file, not for --file")
    sources = [(name, given.folder / SETS[name][0], given.folder / SETS[name][1], SETS[name][2]) for name in names]
    sources += [(path.stem, path, path, "utf-8") for path in given.file]
    print(
        "| data | variant | seed | accuracy | loss | TF-IDF + LR | steps | seconds |\n|---|---|---|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as held:
        for name, training, test, encoding in sources:
            folder = Path(held) / name
            folder.mkdir()
            files = (training, test) if given.test else split(training, encoding, folder)
            read_as = encoding if given.test else "utf-8"
            for variant in given.variants:
                for seed in range(given.seeds):
                    found = measured(files, read_as, VARIANTS[variant], steps=given.steps, seed=seed)
                    print(f"| {name} | {variant} | {seed} | {found} |", flush=True)


if __name__ == "__main__":
    main()
