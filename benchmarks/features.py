"""Features of words in context against features of words alone: ELMo and word2vec, both trained on the same text,
below a new head, on WNUT-17 (entity F1) and TREC (accuracy).

    python -m benchmarks.features enwik8_first25MB.gz DATA-FOLDER --minutes 10 [--seeds 3] [--out FOLDER]

Only the head is trained, and of ELMo the mix of its layers; with --tuned everything is. Scores are on the test files,
means over the seeds of the heads. Vectors that --out has already are not trained again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import headway
from benchmarks.finetune import SCORE, SETS
from benchmarks.timing import use_threads

FROZEN = {"word2vec": ["embedding"], "elmo": ["embedding", "stack.forwards", "stack.backwards"]}
SETTINGS: dict[str, Any] = {"lr": 5e-3, "optimizer": "adamw", "batch": 32, "eval_every": 0, "save_every": 0}
EPOCHS = 10
TUNED_RATE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--minutes", type=float, default=10.0, help="of ELMo's training")
    parser.add_argument("--size", default="tiny", help="of ELMo")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="of the heads")
    parser.add_argument("--tuned", action="store_true", help="the features are trained too")
    parser.add_argument("--out", type=Path, help="where the trained vectors stay")
    given = parser.parse_args()
    use_threads()
    with TemporaryDirectory() as work:
        starts = {name: (given.out or Path(work)) / name for name in FROZEN}
        if not starts["word2vec"].exists():
            headway.train("vectors", given.text, out=starts["word2vec"], settings={"dimensions": 100}, say=print)
        if not starts["elmo"].exists():
            headway.train(
                "vectors", given.text, out=starts["elmo"], size=given.size, minutes=given.minutes,
                settings={"architecture": "elmo", "eval_every": 0, "vocab": 10_000, "dropout": 0.0}, say=print,
            )  # fmt: skip
        for name in ("wnut17", "trec"):
            for features, start in starts.items():
                scores = [
                    head(
                        given.folder,
                        name,
                        start,
                        [] if given.tuned else FROZEN[features],
                        seed=seed,
                        epochs=given.epochs,
                        out=Path(work),
                    )
                    for seed in range(given.seeds)
                ]
                print(name, features, f"{mean(scores):.4f}", [f"{score:.4f}" for score in scores], flush=True)


def head(folder: Path, name: str, start: Path, frozen: list[str], *, seed: int, epochs: int, out: Path) -> float:
    """The score on the test file of a head that is trained on frozen features."""
    spec, settings = SETS[name], SETTINGS if frozen else SETTINGS | {"lr": TUNED_RATE}
    trained = headway.train(
        spec["task"], folder / spec["train"], valid=folder / spec["test"], start=start, encoding=spec["encoding"],
        epochs=epochs, seed=seed, settings=settings, freeze=frozen, out=out / f"{name}-{start.name}-{seed}",
    )  # fmt: skip
    return trained.scores[SCORE[spec["task"]]]


if __name__ == "__main__":
    main()
