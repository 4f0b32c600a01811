"""DPO on human preferences: how often the preferred of two held-out answers is recognised, before and after.

    python -m benchmarks.preferences PAIRS START OUT [--seeds 3]

PAIRS is dpo_en_demo.json, START a model tuned to chat (benchmarks.chat_tuning). HELD_OUT pairs, chosen by a hash of
their prompt, are looked at once, after training. Before: the more likely answer, as a whole or by the mean of its
tokens. After: the answer with the larger reward, log p(answer) − log p of the START model. The last weights are taken.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from pathlib import Path
from typing import Any

import headway
from headway.data.read import read
from headway.tasks.chat import Chat

HELD_OUT = 120
SETTINGS: dict[str, Any] = {  # set before the first run
    "lr": 1e-4, "batch": 8, "beta": 0.1, "schedule": "linear", "warmup": 0.1, "eval_every": 0, "save_every": 0
}  # fmt: skip
EPOCHS = 2


def split(pairs: Path, out: Path) -> tuple[Path, Path]:
    """Training pairs, and held-out ones."""

    def place(row: dict[str, Any]) -> str:
        return hashlib.sha256(json.dumps(row["conversations"]).encode()).hexdigest()

    rows = sorted(json.loads(pairs.read_text(encoding="utf-8")), key=place)
    out.mkdir(parents=True, exist_ok=True)
    for name, part in (("test", rows[:HELD_OUT]), ("train", rows[HELD_OUT:])):
        (out / f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)) + "\n", encoding="utf-8")
    return out / "train.jsonl", out / "test.jsonl"


def shorter_wins(file: Path) -> float:
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return statistics.mean(len(row["chosen"]["value"]) < len(row["rejected"]["value"]) for row in rows)


def scores(folder: Path, test: Path, *, reference: Path | None = None) -> dict[str, float]:
    """Of the held-out pairs; no answers are generated."""
    bundle = headway.load(folder)
    task = bundle.find_task()
    assert isinstance(task, Chat)
    if reference is not None:
        task.set_reference(headway.load(reference).model)
    return task.quick_evaluate(bundle.model, read(test, fields=Chat.fields))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    train, test = split(given.pairs, given.out)
    print(f"{HELD_OUT} held-out pairs; the shorter answer is preferred in {shorter_wins(test):.1%}")
    before = scores(given.start, test)
    print(
        f"before: the more likely answer is preferred in {before['likelihood_accuracy']:.1%}, by the mean of its "
        f"tokens in {before['token_likelihood_accuracy']:.1%}", flush=True,
    )  # fmt: skip
    found = []
    for seed in range(given.seeds):
        began = time.process_time()
        # nothing is chosen by held-out pairs: the weights are evaluated once, at the end
        headway.train(
            "chat", train, valid=test, start=given.start, out=given.out / f"seed{seed}", epochs=EPOCHS, seed=seed,
            settings=SETTINGS,
        )  # fmt: skip
        minutes = (time.process_time() - began) / 60
        after = scores(given.out / f"seed{seed}", test, reference=given.start)
        found.append(after["reward_accuracy"])
        print(
            f"seed {seed}: the answer with the larger reward is preferred in {after['reward_accuracy']:.1%} "
            f"(margin {after['margin']:.3f}; more likely {after['likelihood_accuracy']:.1%}, by the mean of its tokens "
            f"{after['token_likelihood_accuracy']:.1%}); {minutes:.1f} minutes of one core", flush=True,
        )  # fmt: skip
    print(f"after: {statistics.mean(found):.1%}, from {min(found):.1%} to {max(found):.1%}")


if __name__ == "__main__":
    main()
