"""The demo: trains and evaluates a translator of dates, draws its attention and explains one answer."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from headway.explain import explain
from headway.jobs.inference import evaluate
from headway.jobs.preparation import Say
from headway.jobs.run_config import make_plan
from headway.jobs.training import progress, run_plan

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
    say("Headway demo: train a small Transformer to convert written dates to ISO 8601.")
    say("")
    exact = {"vocab": 300, "label_smoothing": 0.0}  # each input has one right answer
    exact["skip_spikes"] = 0  # and no batch is damaged: large gradients near the end are those of rare forms
    plan = make_plan("translate", steps=STEPS, settings={"eval_every": STEPS // 2, "save_every": "1m", **exact})
    trained = run_plan(plan, out, callbacks=[progress(plan)], say=say)
    if trained.result.exit_code:
        raise SystemExit(trained.result.exit_code)
    scores = evaluate(trained.bundle, beams=1)
    say("")
    say(f"{scores['exact']:.1%} of 1,000 unseen dates exactly right (BLEU {scores['bleu']:.1f})")
    say("")
    width = max(map(len, INPUTS))
    for text, answer in zip(INPUTS, trained.bundle(INPUTS), strict=True):
        say(f"  {text:<{width}}  →  {answer}")
    explained = explain(trained.bundle, INPUTS[0])
    explained.draw("alignment", path=out / "alignment.png")
    say("")
    say(f"Cross-attention of one answer:  {out / 'alignment.png'}")
    say(f"Every number of that answer:    {explained.save(out / 'explain.html')}  (open it in a browser)")
    say(f"Done in {(time.monotonic() - began) / 60:.1f} minutes. Try next:")
    say(f"  headway run {out} 'christmas eve'          an input unlike the training data")
    say(f"  headway explain {out} 'christmas eve'      every number of the answer, as a page")
    say(f"  headway info {out}                         shape and parameters of the model")
    say("  headway train classify                      another task, on its own built-in data")
    say("  headway train translate pairs.tsv           your own data: two columns, source and target")
    return scores
