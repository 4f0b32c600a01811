"""Prints the losses of 30 training steps of small models as JSON: exactly (hexadecimal), by case.

Fails if the trainings import torch's compiler, which takes longer than they do (headway.training.eager)."""

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from support import task_run
from support.step_memory import Tokens, loss
from support.task_run import SMALL, losses, started, trained

from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import decoder
from headway.training import loop
from headway.training.settings import Settings

STEPS = 30
CASES = {  # name, seed of the order of the examples, dropout
    "classify": ("classify", 0, 0.0),
    "generate": ("generate", 0, 0.0),
    "translate": ("translate", 0, 0.0),
    "translate with dropout": ("translate", 0, 0.1),
    "classify in another order": ("classify", 1, 0.0),
}
VOCAB, LENGTH = 64, 32  # of the decoder


def golden_losses(name: str, folder: Path, *, seed: int, dropout: float) -> list[str]:
    size = replace(SMALL, dropout=dropout)
    if name == "generate":
        torch.manual_seed(seed)
        source = Tokens(8, LENGTH, VOCAB)
        model = build(decoder(size, "modern", vocab=VOCAB, context=LENGTH))
        initialise(model, "modern", seed=0)
        settings = Settings(steps=STEPS, seed=seed, log_every=1, eval_every=0, save_every=0, device="cpu")
        result = loop.fit(model, source, loss=loss, settings=settings, folder=folder)
    else:
        task_run.SMALL = size
        task, model, data = started(name, rows=100)
        result = trained(task, model, data, folder=folder, steps=STEPS, seed=seed, batch=8)
    return [loss.hex() for loss in losses(result)]


def main() -> None:
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # not needed
    found = {}
    for case, (name, seed, dropout) in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            found[case] = golden_losses(name, Path(folder), seed=seed, dropout=dropout)
    assert "torch._dynamo" not in sys.modules
    print(json.dumps(found))


if __name__ == "__main__":
    main()
