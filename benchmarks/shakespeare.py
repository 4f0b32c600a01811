"""Tiny Shakespeare, characters: the time to the validation loss of nanoGPT's own CPU recipe, side by side.

    python -m benchmarks.shakespeare INPUT.TXT --nanogpt FOLDER

nanoGPT's code stays where it is: its folder is an argument. It trains its README's CPU recipe (4 layers, 4 heads, width
128, context 64, batch 12, 2000 iterations), and its final loss over the whole validation split (the last tenth of the
text, windows of 64) is the mark. Without the folder, a stand-in of ours trains the same recipe: a GPT-2-shaped model,
AdamW, warm-up and cosine. Headway trains the same size and batch by its `modern` and `classic` recipes and the clock is
read when it has trained; what counts is training time, evaluation not included, for all alike.
"""

from __future__ import annotations

import argparse
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import use_threads
from headway import jobs
from headway.jobs.preparation import initial_bundle, make_source
from headway.jobs.run_config import facts_of
from headway.training.loop import fit

SIZE = {"width": 128, "layers": 4, "heads": 4, "dropout": 0.0}
CPU_RECIPE = (
    "--device=cpu --compile=False --eval_iters=1 --eval_interval=2000 --log_interval=100 --block_size=64 "
    "--batch_size=12 --n_layer=4 --n_head=4 --n_embd=128 --max_iters=2000 --lr_decay_iters=2000 --dropout=0.0"
)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("text", type=Path)
    parser.add_argument("--nanogpt", type=Path)
    parser.add_argument("--steps", type=int, default=270, help="of the modern recipe")
    parser.add_argument("--classic-steps", type=int, default=2000)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    use_threads()
    if options.nanogpt:
        peer, mark, seconds = "nanoGPT", *nanogpt(options.nanogpt, options.text)
    else:
        peer, mark, seconds = "stand-in", *train(options.text, 2000, recipe="gpt2")
    print(f"{peer:<10} 2000 iterations  {seconds:6.1f} s  validation loss {mark:.4f}", flush=True)
    for recipe, steps in {"modern": options.steps, "classic": options.classic_steps}.items():
        if steps:
            loss, took = train(options.text, steps, recipe=recipe, more=options.set)
            print(f"{recipe:<10} {steps:4} iterations  {took:6.1f} s  validation loss {loss:.4f}", flush=True)
            if recipe == "modern":
                reached, ours = loss <= mark, took
    print(f"ratio of our time to {peer}'s {ours / seconds:.3f}; the mark was {'reached' if reached else 'NOT REACHED'}")


def train(text: Path, steps: int, *, recipe: str, more: list[str] = []) -> tuple[float, float]:  # noqa: B006
    """(loss over the whole validation split, seconds of training)."""
    from headway.jobs.overrides import parse

    settings = {"kind": "char", "context": 64, "batch": 12, "eval_every": 0, "save_every": 0, "log_every": 50}
    if recipe == "gpt2":
        settings |= {"optimizer": "adamw", "lr": 1e-3, "betas": [0.9, 0.99], "weight_decay": 0.1}
        settings |= {"schedule": "cosine", "floor": 0.1, "warmup": 100}
    elif recipe == "modern":
        settings |= {"lr": 0.01, "matrix_lr": 0.05, "decay": 1.0, "warmup": 0.0, "clip": 0.0} | parse(more)
    plan = jobs.make_plan("generate", [text], recipe="modern" if recipe == "gpt2" else recipe, steps=steps,
                          settings={**{f"model.{key}": value for key, value in SIZE.items()}, **settings})  # fmt: skip
    data = jobs.open_data(plan)
    bundle = initial_bundle(plan, facts_of(plan, data))
    if recipe == "gpt2":
        bundle.model = gpt2(len(bundle.processor.tokenizer))
    with tempfile.TemporaryDirectory() as folder:
        source = make_source(bundle.task, data, Path(folder), settings=plan.settings(), say=print)
        took = fit(bundle.model, source, loss=bundle.task.loss, settings=plan.settings(), folder=folder).seconds
    return bundle.task.evaluate(bundle.model, data.valid())["loss"], took


def gpt2(vocab: int) -> torch.nn.Module:
    """The peer's model: GPT-2's shape without biases."""
    from headway.families.family import Keys
    from headway.families.gpt2 import read
    from headway.models.build import build

    config = read(Keys({"n_embd": 128, "n_head": 4, "n_layer": 4, "vocab_size": vocab, "n_positions": 64,
                        "resid_pdrop": 0.0, "attn_pdrop": 0.0, "embd_pdrop": 0.0}), "GPT2LMHeadModel")  # fmt: skip
    model = build(config)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, 0.0, 0.02)
    return model


def nanogpt(folder: Path, text: Path) -> tuple[float, float]:
    """(loss over the whole validation split, seconds of training) of nanoGPT's own code, run in a copy."""
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch) / "nanoGPT"
        shutil.copytree(folder, work)
        _prepare(text, work / "data" / "shakespeare_char")
        run = {"cwd": work, "env": {**os.environ, "OMP_NUM_THREADS": "2"}, "capture_output": True, "text": True}
        command = [sys.executable, "train.py", "config/train_shakespeare_char.py", *CPU_RECIPE.split()]
        command += ["--always_save_checkpoint=True"]
        done = subprocess.run(command, check=True, **run)
        times = [float(t) for t in re.findall(r"time ([\d.]+)ms", done.stdout)]
        seconds = 2000 * sorted(times)[len(times) // 2] / 1e3  # each line is the time of one iteration
        sys.path.insert(0, str(work))
        from model import GPT, GPTConfig  # type: ignore[import-not-found]

        kept = torch.load(work / "out-shakespeare-char" / "ckpt.pt", map_location="cpu", weights_only=True)
        model = GPT(GPTConfig(**kept["model_args"]))
        model.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in kept["model"].items()})
        ids = np.fromfile(work / "data" / "shakespeare_char" / "val.bin", dtype=np.uint16).astype(np.int64)
        return _whole_split(model.eval(), torch.from_numpy(ids)), seconds


def _prepare(text: Path, folder: Path) -> None:
    """The files nanoGPT trains from: ids of the characters, first nine tenths and last tenth, and its vocabulary."""
    whole = text.read_text(encoding="utf-8")
    letters = sorted(set(whole))
    ids = np.array([letters.index(letter) for letter in whole], dtype=np.uint16)
    cut = int(len(ids) * 0.9)
    ids[:cut].tofile(folder / "train.bin")
    ids[cut:].tofile(folder / "val.bin")
    (folder / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": len(letters)}))


@torch.no_grad()
def _whole_split(model: torch.nn.Module, ids: torch.Tensor, context: int = 64) -> float:
    total = count = 0
    for start in range(0, len(ids) - 1, context):
        part = ids[start : start + context + 1]
        _, loss = model(part[None, :-1], part[None, 1:])
        total, count = total + float(loss) * (len(part) - 1), count + len(part) - 1
    return total / count


if __name__ == "__main__":
    main()
