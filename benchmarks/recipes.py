"""The recipe `published` against the blocks of Headway's own, with an equal number of steps.

    python -m benchmarks.recipes DATA shakespeare multi30k trec fill --seeds 3

Both sides have the same size, data, order, optimiser and schedule, and about the same number of weights (a gated
feed-forward network has three matrices of 8/3 of the width where a plain one has two of four times the width). The loss
is that of the held-out part of the *training* data; test and validation files are not read. `own` is pre-norm, RMS
norm, rotary positions, norms on queries and keys, ReLU² and a norm of the embedding.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from headway import tasks
from headway.data.dataset import Dataset
from headway.jobs.preparation import make_source
from headway.jobs.run_config import Plan, make_plan, open_data
from headway.models import recipes
from headway.models.build import Model, build
from headway.models.config import DecoderConfig, ModelConfig
from headway.models.init import initialise
from headway.tasks.batches import ExampleSource, StreamSource, prepare
from headway.tasks.task import Task
from headway.training.loop import fit

SMALL = {"model.width": 128, "model.layers": 4, "model.heads": 4}
CASES: dict[str, dict[str, Any]] = {
    "shakespeare": {"task": "generate", "steps": 300, "kind": "char", "context": 64, "batch": 12, **SMALL,
                    "model.dropout": 0.0},
    "multi30k": {"task": "translate", "steps": 250, "vocab": 4000, "batch": 48, "decay": 1.0, **SMALL,
                 "model.layers": 3},
    "trec": {"task": "classify", "steps": 200, "batch": 32, **SMALL},
    "fill": {"task": "fill", "steps": 300, "vocab": 2000, "limit": 64, "batch": 16, "next_sentence": False,
             "decay": 1.0, **SMALL},
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("cases", nargs="+", choices=CASES)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for case in options.cases:
        losses: dict[str, list[float]] = {"own": [], "published": []}
        for seed in range(options.seeds):
            for blocks, found in losses.items():
                loss, seconds, weights = run(case, blocks, options.data, seed=seed, steps=options.steps)
                found.append(loss)
                print(f"{case:<12} {blocks:<10} seed {seed}  {weights:,} parameters  {seconds:6.1f} s of processor time"
                      f"  loss {loss:.4f}", flush=True)  # fmt: skip
        own, other = (statistics.mean(found) for found in losses.values())
        print(f"{case:<12} mean: own {own:.4f}, published {other:.4f}, {other / own - 1:+.2%}", flush=True)


def files(case: str, data: Path, folder: Path) -> tuple[list[Path], list[Path] | None]:
    """(training files, validation files), all of the data set's training part."""
    if case in ("shakespeare", "fill"):  # the last tenth is the usual validation text
        text = (data / "tinyshakespeare" / "input.txt").read_text(encoding="utf-8")
        (folder / "train.txt").write_text(text[: len(text) * 9 // 10], encoding="utf-8")
        return [folder / "train.txt"], None
    if case == "trec":
        lines = (data / "trec" / "train.txt").read_text(encoding="latin-1").splitlines()
        rows = ["\t".join(reversed(line.split(" ", 1))) for line in lines]
        return [split(rows, folder, "rows.tsv", held_out=700, head="text\tlabel")], [folder / "held-out-rows.tsv"]
    sides = [(data / "multi30k" / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("en", "de")]
    train = [
        split(lines, folder, f"pairs.{side}", held_out=1000) for side, lines in zip(("en", "de"), sides, strict=True)
    ]
    return train, [folder / "held-out-pairs.en", folder / "held-out-pairs.de"]


def split(lines: list[str], folder: Path, name: str, *, held_out: int, head: str = "") -> Path:
    for file, part in ((name, lines[:-held_out]), (f"held-out-{name}", lines[-held_out:])):
        (folder / file).write_text("\n".join([head] * bool(head) + part) + "\n", encoding="utf-8")
    return folder / name


def config_of(task: Task, size: recipes.Size, blocks: str) -> ModelConfig:
    """Of the published architecture, or of the blocks of Headway's own."""
    config: Any = task.config(size, "modern" if blocks == "own" else "published")
    if blocks == "own" and isinstance(config, DecoderConfig):  # those of the recipe are published
        tokens = recipes.embedding(size, "modern", vocab=config.embedding.vocab)
        return replace(config, embedding=tokens, stack=recipes.stack(size, "modern", causal=True))
    return config


def run(case: str, blocks: str, data: Path, *, seed: int, steps: int = 0) -> tuple[float, float, int]:
    """(held-out loss, processor seconds of training, parameters)."""
    settings = {"eval_every": 0, "save_every": 0, **CASES[case]}
    name, length = settings.pop("task"), steps or settings.pop("steps")
    settings.pop("steps", None)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        train, valid = files(case, data, folder)
        plan = make_plan(name, train, valid=valid, steps=length, seed=seed, settings=settings)
        rows = open_data(plan).load()
        task = tasks.find(name).from_data(tasks.find(name).scan(rows.train()), tokenizer=None, options=plan.options)
        model = build(config_of(task, plan.size(), blocks))
        initialise(model, "modern", seed=seed)
        source = make_source(task, rows, folder, settings=plan.settings(), say=lambda line: None)
        begun = time.process_time()
        fit(model, source, loss=task.loss, settings=plan.settings(), folder=folder)
        seconds = time.process_time() - begun
        return (
            held_out_loss(task, model, rows, plan=plan, folder=folder),
            seconds,
            sum(p.numel() for p in model.parameters()),
        )


@torch.no_grad()
def held_out_loss(task: Any, model: Model, rows: Dataset, *, plan: Plan, folder: Path) -> float:
    """Of the task, without label smoothing."""
    model.eval()
    settings = plan.settings()
    if hasattr(task, "label_smoothing"):
        task.label_smoothing = 0.0
    store = prepare(task, rows.valid(), folder / "held-out", key="held-out")
    shared: dict[str, Any] = {"batch": settings.batch, "seed": 0, "fingerprint": "held-out"}
    source: Any
    if task.stream:
        source = StreamSource(store.flat("ids"), task, context=task.context, **shared)
    else:
        source = ExampleSource(store, task, unit="examples", **shared)
    total = count = 0.0
    for indices in source.epoch(0):
        batch = source.load(indices, 0)
        total, count = total + float(task.loss(model, batch).total), count + batch.count
    return total / count


if __name__ == "__main__":
    main()
