"""Answering from a text, against a reference script: MiniLM fine-tuned on SQuAD-like JSON by Headway and by the
transformers Trainer in the usual way (windows of 384 tokens grouped by length, the best of 20 starts and ends, no
answer where that scores higher), with the same start, articles, epochs, batch and learning rate.

    python -m benchmarks.answer SQUAD.json [--epochs 2]

Every fifth article is the test. Both are scored by the same exact match and F1.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.finetune import minilm, ours
from benchmarks.timing import use_threads
from headway.data.read import read
from headway.tasks import squad

LR, BATCH, LIMIT, OVERLAP, LONGEST, BEST = 1e-4, 16, 384, 128, 30, 20


def split(path: Path, folder: Path) -> None:
    whole = json.loads(path.read_text(encoding="utf-8"))
    articles = whole["data"]
    for name, part in {"train": [a for i, a in enumerate(articles) if i % 5], "test": articles[::5]}.items():
        (folder / f"{name}.json").write_text(json.dumps({**whole, "data": part}), encoding="utf-8")


def theirs(folder: Path, epochs: int) -> tuple[dict[str, float], float]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm())
    train, test = (_rows(folder / f"{name}.json") for name in ("train", "test"))
    windows = [window for row in train for window in _windows(row, tokenizer)]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as out:
        trainer = transformers.Trainer(
            model=transformers.AutoModelForQuestionAnswering.from_pretrained(minilm()),
            args=transformers.TrainingArguments(
                output_dir=out, per_device_train_batch_size=BATCH, per_device_eval_batch_size=32,
                num_train_epochs=epochs, learning_rate=LR, lr_scheduler_type="linear", warmup_steps=0.06,
                weight_decay=0.01, use_cpu=True, save_strategy="no", logging_strategy="no", report_to=[],
                disable_tqdm=True, train_sampling_strategy="group_by_length",
            ),
            train_dataset=[window["features"] for window in windows],
            data_collator=transformers.DataCollatorWithPadding(tokenizer),
        )  # fmt: skip
        began = time.perf_counter()
        trainer.train()
        seconds = time.perf_counter() - began
        asked = [(row, window) for row in test for window in _windows(row, tokenizer)]
        starts, ends = trainer.predict([window["features"] for _, window in asked]).predictions[:2]
    found: dict[int, list[tuple[float, str]]] = {}
    nulls: dict[int, float] = {}
    for (row, window), start, end in zip(asked, starts, ends, strict=True):
        nulls[id(row)] = min(nulls.get(id(row), float("inf")), float(start[0] + end[0]))
        found.setdefault(id(row), []).extend(_spans(row.fields["context"], window["offsets"], start, end))
    answers = []
    for row in test:
        score, text = max(found[id(row)], default=(-float("inf"), ""))
        answers.append(text if score > nulls[id(row)] else "")
    references = [[text for text, _ in row.fields["answers"]] for row in test]
    return squad.report(answers, references), len(windows) * epochs / seconds


def _rows(path: Path) -> list[Any]:
    return list(read(path, fields=("question", "context", "answers")))


def _windows(row: Any, tokenizer: Any) -> list[dict[str, Any]]:
    fields = row.fields
    encoded = tokenizer(fields["question"].strip(), fields["context"], truncation="only_second", max_length=LIMIT,
                        stride=OVERLAP, return_overflowing_tokens=True, return_offsets_mapping=True)  # fmt: skip
    answers = [(text, start) for text, start in fields["answers"] if text.strip()]
    out = []
    for number, ids in enumerate(encoded["input_ids"]):
        offsets = [
            offset if part == 1 else None
            for offset, part in zip(encoded["offset_mapping"][number], encoded.sequence_ids(number), strict=True)
        ]
        first = last = 0
        if answers:
            begin, end = answers[0][1], answers[0][1] + len(answers[0][0])
            inside = [i for i, offset in enumerate(offsets) if offset]
            if inside and offsets[inside[0]][0] <= begin and offsets[inside[-1]][1] >= end:
                first = max(i for i in inside if offsets[i][0] <= begin)
                last = min(i for i in inside if offsets[i][1] >= end)
        features = {"input_ids": ids, "token_type_ids": encoded["token_type_ids"][number]}
        out.append({"features": {**features, "start_positions": first, "end_positions": last}, "offsets": offsets})
    return out


def _spans(context: str, offsets: list[Any], start: Any, end: Any) -> list[tuple[float, str]]:
    out = []
    for first in start.argsort()[::-1][:BEST]:
        for last in end.argsort()[::-1][:BEST]:
            reach = max(first, last) < len(offsets) and first <= last < first + LONGEST
            if reach and offsets[first] and offsets[last]:
                out.append((float(start[first] + end[last]), context[offsets[first][0] : offsets[last][1]]))
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    use_threads()
    transformers.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        split(options.data, folder)
        spec = {"task": "answer", "train": "train.json", "test": "test.json", "epochs": options.epochs, "lr": LR,
                "batch": BATCH}  # fmt: skip
        mine, speed = ours(folder, spec)
        _show("headway", mine, speed)
        reference, pace = theirs(folder, options.epochs)
        _show("reference", reference, pace)
    print(f"ratio of F1 {mine['f1'] / reference['f1']:.3f}, of windows a second {speed / pace:.2f}")


def _show(name: str, scores: dict[str, float], speed: float) -> None:
    parts = "  ".join(f"{key} {value:.2%}" for key, value in scores.items() if key != "loss")
    print(f"{name:<10} {parts}  {speed:.1f} windows/s", flush=True)


if __name__ == "__main__":
    main()
