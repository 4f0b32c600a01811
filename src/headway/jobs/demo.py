"""Room: jobs. The demo: from nothing to a tested translator of dates and a picture of what it looks at."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, cast

import torch

from headway.bundle import Bundle
from headway.inspect import draw_alignment, record
from headway.jobs.plan import make_plan
from headway.jobs.training import Say, progress, run_plan
from headway.jobs.using import evaluate
from headway.tasks.translate import Translate

INPUTS = [
    "the 3rd of May 1998",
    "Sunday, 12 April 2020",
    "July 4th, 1976",
    "29 feb 2024",
    "03.10.1990",
]
STEPS = 1000


def run_demo(out: Path, *, say: Say) -> dict[str, float]:
    began = time.monotonic()
    if (out / "training").exists():
        say(f"removing the earlier demo in {out}")
        shutil.rmtree(out)
    say("Headway demo: teach a small Transformer to read dates written by people.\n")
    exact = {"vocab": 300, "label_smoothing": 0.0}  # one right answer each: nothing to be unsure of
    plan = make_plan("translate", steps=STEPS, settings={"eval_every": STEPS // 2, "save_every": "1m", **exact})
    trained = run_plan(plan, out, callbacks=[progress(plan)], say=say)
    if trained.result.exit_code:
        raise SystemExit(trained.result.exit_code)
    scores = evaluate(trained.bundle, beams=1)
    say(f"\n{scores['exact']:.1%} of 1,000 unseen dates exactly right (BLEU {scores['bleu']:.1f})\n")
    width = max(map(len, INPUTS))
    for text, answer in zip(INPUTS, trained.bundle(INPUTS), strict=True):
        say(f"  {text:<{width}}  →  {answer}")
    picture = out / "alignment.png"
    draw(trained.bundle, INPUTS[0], picture)
    say(f"\nWhat it looked at while writing: {picture}")
    say(f"Done in {(time.monotonic() - began) / 60:.1f} minutes. Try next:")
    say(f"  headway run {out} 'christmas eve'          what does it make of something it never saw?")
    say(f"  headway info {out}                         every part of the model, counted")
    say("  headway train classify                      another task, on its own built-in data")
    say("  headway train translate pairs.tsv           your own data: two columns, source and target")
    return scores


@torch.no_grad()
def draw(bundle: Bundle, text: str, path: Path) -> None:
    """The cross-attention of the last layer, averaged over its heads, for one input and its answer."""
    task, model = cast(Translate, bundle.task), cast(Any, bundle.model)
    source = task.source_ids(text, where="input")
    target = task.target_ids(bundle(text), where="answer")
    shifted = torch.tensor([[task.start_id, *target[:-1]]], device=bundle.device)
    with record(model, "*cross.weights") as seen:
        model(torch.tensor([source], device=bundle.device), decoder_ids=shifted)
    weights = list(seen.values())[-1][0][0].mean(0).cpu().numpy()  # (target, source)
    names = task.tokenizer.tokens
    draw_alignment(weights, columns=names(source), rows=names(target), path=path, title=f"{text} → {bundle(text)}")
