"""DPO on human preferences: how often the preferred of two held-out answers is recognised, before and after.

    python -m benchmarks.preferences PAIRS START OUT [--seeds 3] [--variants NAME NAME …]

PAIRS is dpo_en_demo.json, START a model tuned to chat (benchmarks.chat_tuning). HELD_OUT pairs, chosen by a hash of
their prompt, are scored after training alone. Before: the more likely answer, as a whole or by the mean of its tokens.
After: the answer with the larger reward, log p(answer) − log p of the START model. The last weights are taken.

Of several variants each is trained on two thirds of the training pairs and scored on the other third, and the best goes
on; the held-out pairs have no part in it. --folds 3 lets each third be the other one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import headway
from headway.data.read import read
from headway.tasks.chat import Chat

HELD_OUT = 120
SETTINGS: dict[str, Any] = {"batch": 8, "schedule": "linear", "warmup": 0.1, "eval_every": 0, "save_every": 0}
MATRICES = ["embedding", "*.attention.*", "*.feedforward.*"]  # so that the norms are left: 3,744 weights
IPO = {"objective": "ipo", "beta": 1.0}  # a margin of half a nat a token
VARIANTS: dict[str, dict[str, Any]] = {  # settings, and options of `headway.train`
    "dpo, all weights, 1e-5": {"settings": {"beta": 0.1, "lr": 1e-5}},
    "dpo, all weights, 1e-4": {"settings": {"beta": 0.1, "lr": 1e-4}},
    "dpo, LoRA": {"settings": {"beta": 0.1, "lr": 1e-3}, "lora": 8},
    "ipo, LoRA": {"settings": {**IPO, "lr": 1e-3}, "lora": 8},
    "ipo, LoRA, 3 epochs": {"settings": {**IPO, "lr": 1e-3}, "lora": 8, "epochs": 3},
    "ipo, all weights, 1e-4": {"settings": {**IPO, "lr": 1e-4}},
    "ipo, norms": {"settings": {**IPO, "lr": 1e-2}, "freeze": MATRICES, "epochs": 2},
    "dpo, norms": {"settings": {"beta": 0.1, "lr": 1e-2}, "freeze": MATRICES, "epochs": 2},
}
THIRDS = 3


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


def tuned(train: Path, test: Path, start: Path, out: Path, *, variant: str, seed: int) -> dict[str, float]:
    """The scores of the test pairs after DPO on the training pairs."""
    options = {"epochs": 1, **VARIANTS[variant]}
    options["settings"] = SETTINGS | options["settings"]
    headway.train("chat", train, valid=test, start=start, out=out, seed=seed, **options)
    return scores(out, test, reference=start)


def choose(train: Path, start: Path, out: Path, *, variants: Sequence[str], folds: int) -> str:
    """The variant with the best mean accuracy on parts of the training pairs."""
    lines, found = train.read_text(encoding="utf-8").splitlines(), dict[str, list[float]]()
    for fold in range(folds):
        parts = {"test": lines[fold::THIRDS], "train": [line for n, line in enumerate(lines) if n % THIRDS != fold]}
        files = {name: out / f"fold{fold}-{name}.jsonl" for name in parts}
        for name, part in parts.items():
            files[name].write_text("\n".join(part) + "\n", encoding="utf-8")
        for variant in variants:
            folder = out / f"fold{fold}-{list(VARIANTS).index(variant)}"
            score = tuned(files["train"], files["test"], start, folder, variant=variant, seed=0)
            found.setdefault(variant, []).append(score["reward_accuracy"])
            print(f"fold {fold}, {variant}: {found[variant][-1]:.1%}, margin {score['margin']:.3f}", flush=True)
    return max(found, key=lambda variant: statistics.mean(found[variant]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path)
    parser.add_argument("start", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=["ipo, LoRA"])
    parser.add_argument("--folds", type=int, choices=range(1, THIRDS + 1), default=1, help="to choose a variant by")
    given = parser.parse_args()
    train, test = split(given.pairs, given.out)
    print(f"{HELD_OUT} held-out pairs; the shorter answer is preferred in {shorter_wins(test):.1%}")
    before = scores(given.start, test)
    print(
        f"before: the more likely answer is preferred in {before['likelihood_accuracy']:.1%}, by the mean of its "
        f"tokens in {before['token_likelihood_accuracy']:.1%}", flush=True,
    )  # fmt: skip
    variant = given.variants[0]
    if len(given.variants) > 1:
        variant = choose(train, given.start, given.out, variants=given.variants, folds=given.folds)
    print(variant, flush=True)
    found = []
    for seed in range(given.seeds):
        began = time.process_time()
        after = tuned(train, test, given.start, given.out / f"seed{seed}", variant=variant, seed=seed)
        minutes = (time.process_time() - began) / 60
        found.append(after["reward_accuracy"])
        print(
            f"seed {seed}: the answer with the larger reward is preferred in {after['reward_accuracy']:.1%} "
            f"(margin {after['margin']:.3f}; more likely {after['likelihood_accuracy']:.1%}, by the mean of its tokens "
            f"{after['token_likelihood_accuracy']:.1%}); {minutes:.1f} minutes of one core", flush=True,
        )  # fmt: skip
    print(f"after: {statistics.mean(found):.1%}, from {min(found):.1%} to {max(found):.1%}")


if __name__ == "__main__":
    main()
