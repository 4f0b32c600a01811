"""Prints, for each case of a JSON list, the bytes of a training's tensors at its peak, by PyTorch's own count
of allocations. Memory held by the C library is not included."""

import gc
import json
import sys
import tempfile

import numpy as np
import torch
from torch.nn import functional as F

from headway.data.batch import Batch, Loss
from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import Size, decoder
from headway.training import loop
from headway.training.settings import Settings


class Tokens:
    fingerprint = "tokens"

    def __init__(self, rows: int, length: int, vocab: int) -> None:
        self.ids = torch.randint(vocab, (rows, length))

    def epoch(self, number: int) -> list[np.ndarray]:
        return [np.arange(len(self.ids))]

    def load(self, indices: np.ndarray, epoch: int) -> Batch:
        ids = self.ids[indices]
        return Batch({"inputs": ids}, {"ids": ids}, count=ids.numel(), where=[""] * len(ids))


def loss(model: torch.nn.Module, batch: Batch) -> Loss:
    logits = model(**batch.inputs).logits
    return Loss(F.cross_entropy(logits.flatten(0, 1), batch.targets["ids"].flatten(), reduction="sum"))


def peak(profile: torch.profiler.profile) -> int:
    events = profile.profiler.kineto_results.events()
    changes = sorted((event.start_ns(), event.nbytes()) for event in events if event.name() == "[memory]")
    return int(np.cumsum([change for _, change in changes]).max())


def train(*, width: int, layers: int, vocab: int, rows: int, length: int, **settings: object) -> int:
    options = Settings(**{"steps": 3, "save_every": 0, "eval_every": 0, "device": "cpu", **settings})
    activities = [torch.profiler.ProfilerActivity.CPU]
    gc.collect()  # or memory of the previous training would be counted as freed by this one
    with (
        tempfile.TemporaryDirectory() as folder,
        torch.profiler.profile(activities=activities, profile_memory=True) as profile,
    ):
        model = build(decoder(Size(width=width, layers=layers, heads=4), "modern", vocab=vocab, context=length))
        initialise(model, "modern", seed=0)
        loop.fit(model, Tokens(rows, length, vocab), loss=loss, settings=options, folder=folder)
    return peak(profile)


def main(cases: list[dict]) -> None:
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # not needed
    print(json.dumps([train(**case) for case in cases]))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
