"""Fine-tuning OpenAI's tiny.en against the transformers Trainer: same start, recordings, steps, batch, learning rate
and schedule, from samples on, without augmentation.

    python -m benchmarks.whisper_finetune [--recordings FOLDER] [--steps 4] [--batch 4] [--turns 2]

Trains on read sentences, or on FSDD's files `{digit}_{speaker}_{n}.wav` with n >= 5 in FOLDER; then the word error rate
on those with n < 5 is printed before and after. Each takes its turns in processes of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import headway
from benchmarks.speech_data import RATE, sentences, tiny_en
from benchmarks.spoken_digits import TEST, recordings, write_table
from benchmarks.timing import row, use_threads
from headway import jobs
from headway.data.row import Row
from headway.jobs.preparation import initial_bundle, make_source
from headway.jobs.run_config import facts_of
from headway.preprocess.audio import Sound
from headway.tasks.scores import recognition
from headway.training.loop import fit

LR = 1e-5
PEERS = ("transformers", "headway")
JUDGED = 40  # recordings whose errors are counted


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=Path, help="FSDD's; default: read sentences, and no error rates")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--turns", type=int, default=2, help="processes of each")
    parser.add_argument("--folder", type=Path, help="of the converted weights; default: a temporary one")
    parser.add_argument("--cpu", action="store_true", help="compare processor time in place of the clock")
    parser.add_argument("--only", choices=PEERS, help="measure this one, in this process")
    options = parser.parse_args()
    if options.only:
        print(json.dumps(measured(options)))
        return
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.folder or Path(scratch)
        if not (folder / "tiny.en").is_dir():
            tiny_en(folder / "tiny.en")
        for _ in range(options.turns):
            for name in PEERS:
                command = [sys.executable, "-m", "benchmarks.whisper_finetune", "--only", name, "--folder", str(folder)]
                command += ["--steps", str(options.steps), "--batch", str(options.batch)]
                command += ["--recordings", str(options.recordings)] if options.recordings else []
                found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
                result = json.loads(found)
                times.setdefault(name, []).append(result["cpu" if options.cpu else "seconds"])
                print(f"{name:<14} {json.dumps(result)}", flush=True)
    line, ratio = row(f"a step of {options.batch}", times, peer="transformers", ours="headway")
    print(line)
    print(f"ratio {ratio:.2f}")


def measured(options: Any) -> dict[str, float]:
    """Seconds of a step, by the clock and of all cores; the word error rates before and after, of recordings that were
    not trained on."""
    use_threads()
    train, judged = parts(options.recordings, options.steps * options.batch)
    run = ours if options.only == "headway" else theirs
    return run(options.folder / "tiny.en", train, judged, steps=options.steps, batch=options.batch)


def parts(folder: Path | None, count: int) -> tuple[list[tuple[np.ndarray, str]], list[tuple[np.ndarray, str]]]:
    """(samples, text) of `count` training recordings, and of those that judge."""
    if folder is None:
        known = sentences()
        return [known[number % len(known)] for number in range(count)], []
    order = np.random.default_rng(0).permutation(sorted(recordings(folder), key=lambda each: each.path.name))
    read = lambda part: [(Sound(each.path, RATE).read(), each.text) for each in part]  # noqa: E731
    train = [each for each in order if each.number not in TEST]
    return read(train[:count]), read([each for each in order if each.number in TEST][:JUDGED])


def wer(model: Any, judged: list[tuple[np.ndarray, str]]) -> float:
    found = model([(sound, RATE) for sound, _ in judged], temperature=0.0)
    return recognition([each["text"] for each in found], [text for _, text in judged])["wer_normalized"]


def ours(start: Path, train: list[tuple[np.ndarray, str]], judged: Any, *, steps: int, batch: int) -> dict[str, float]:
    rows = [Row({"audio": (sound, RATE), "text": text}, f"{number}") for number, (sound, text) in enumerate(train)]
    settings = {"lr": LR, "batch": batch, "eval_every": 0, "save_every": 0, "log_every": 100, "augment": False,
                "label_smoothing": 0.0}  # fmt: skip
    with tempfile.TemporaryDirectory() as scratch:
        table = write_table(Path(scratch) / "empty.csv", [])
        plan = jobs.make_plan("transcribe", table, start=start, steps=steps, settings=settings)
        data: Any = _Rows(rows)
        bundle = initial_bundle(plan, facts_of(plan, data))
        assert bundle.task is not None
        before = wer(headway.load(start), judged) if judged else None
        source = make_source(bundle.task, data, Path(scratch), settings=plan.settings(), say=lambda text: None)
        used = time.process_time()
        result = fit(bundle.model, source, loss=bundle.task.loss, settings=plan.settings(), folder=scratch)
        found = {"seconds": result.seconds / steps, "cpu": (time.process_time() - used) / steps}
        if judged:
            found |= {"wer before": before, "wer after": wer(bundle, judged)}
    return found


class _Rows:
    """Training rows without a file."""

    fingerprint, columns = "rows", dict[str, str]()

    def __init__(self, rows: list[Row]) -> None:
        self.rows = rows

    def train(self) -> Any:
        return iter(self.rows)


def theirs(
    start: Path, train: list[tuple[np.ndarray, str]], judged: Any, *, steps: int, batch: int
) -> dict[str, float]:
    import transformers

    transformers.logging.set_verbosity_error()
    processor = transformers.WhisperProcessor.from_pretrained(start)
    model = transformers.WhisperForConditionalGeneration.from_pretrained(start)

    def collate(examples: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
        features = processor([each["sound"] for each in examples], sampling_rate=RATE, return_tensors="pt")
        labels = processor.tokenizer([each["text"] for each in examples], return_tensors="pt", padding=True)
        ids = labels.input_ids.masked_fill(labels.attention_mask == 0, -100)[:, 1:]  # the model adds the start
        return {"input_features": features.input_features, "labels": ids}

    with tempfile.TemporaryDirectory() as out:
        trainer = transformers.Trainer(
            model=model,
            args=transformers.TrainingArguments(
                output_dir=out, per_device_train_batch_size=batch, max_steps=steps, learning_rate=LR,
                lr_scheduler_type="linear", warmup_steps=0.06, weight_decay=0.01, use_cpu=True, save_strategy="no",
                logging_strategy="no", report_to=[], disable_tqdm=True, remove_unused_columns=False,
            ),
            train_dataset=[{"sound": sound, "text": f" {text}"} for sound, text in train],
            data_collator=collate,
        )  # fmt: skip
        began, used = time.perf_counter(), time.process_time()
        trainer.train()
        return {
            "seconds": (time.perf_counter() - began) / steps,
            "cpu": (time.process_time() - used) / steps,
        }


if __name__ == "__main__":
    main()
