"""What each process of the two-rank test runs, in three lives: torchrun starts them again when a rank has died."""

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from headway.train import loop
from headway.train.state import states

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))
RANK, LIFE = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
OPTIONS = {"accumulate": 2, "save_every": 2, "device": "cpu"}
DEATHS = {"none": (0, 1), "full": (1, 0)}  # shard → the life in which a rank dies, and which


class Mortal(toy.ToySource):
    """Dies in the middle of the second epoch."""

    def load(self, indices, epoch):
        if epoch == 1 and set(indices) & set(self.epoch(1)[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load(indices, epoch)


def stop_at_nine(status) -> None:
    if status.step == 9:
        os.kill(os.getpid(), signal.SIGTERM)


def whole(folder: Path) -> None:
    """As one process does it."""
    source = toy.ToySource(examples=21)
    result = toy.toy_fit(folder / "whole", model=toy.ToyModel(dropout=0.0), source=source, **OPTIONS)
    report = {"history": result.history, "seen": source.seen}
    (folder / f"rank-{RANK}.json").write_text(json.dumps(report))


def killed(folder: Path, shard: str) -> None:
    """With dropout: a run of two ranks that goes through, and one in which a rank dies."""
    run, (life, rank) = folder / f"killed-{shard}", DEATHS[shard]
    options = {**OPTIONS, "shard": shard}
    if life == LIFE:
        toy.toy_fit(folder / f"sure-{shard}", **options)
        toy.toy_fit(run, source=Mortal() if rank == RANK else toy.ToySource(), **options)
        raise AssertionError("nobody died")
    begun = int(states(run / "training")[0].name.removeprefix("state-"))
    toy.toy_fit(run, model=toy.ToyModel(seed=1), resume=True, **options)
    (folder / f"begun-{shard}-{RANK}.json").write_text(json.dumps([LIFE, begun]))


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # nobody looks at them
    if LIFE == 0:
        whole(folder)
    for shard, (life, _) in DEATHS.items():
        if LIFE in (life, life + 1):
            killed(folder, shard)
    stop = [SimpleNamespace(on_step=stop_at_nine)]
    model, source = toy.ToyModel(dropout=0.0, seed=1), toy.ToySource(examples=21)
    result = toy.toy_fit(folder / "begun", model=model, source=source, resume=True, callbacks=stop, **OPTIONS)
    assert (result.stopped_by, result.steps, LIFE) == ("SIGTERM", 9, 2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
