"""What each process of the two-rank test runs: a whole run, then one begun alone, in which a rank dies once."""

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
RANK = int(os.environ["RANK"])
FIRST_LIFE = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
OPTIONS = {"accumulate": 2, "save_every": 2, "device": "cpu"}


class Mortal(toy.ToySource):
    """Dies in the second epoch, if this is the second rank's first life."""

    def load(self, indices, epoch):
        if RANK == 1 and FIRST_LIFE and epoch == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load(indices, epoch)


def stop_at_nine(status) -> None:
    if status.step == 9:
        os.kill(os.getpid(), signal.SIGTERM)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # nobody looks at them
    if FIRST_LIFE:
        source = toy.ToySource(examples=21)
        result = toy.toy_fit(folder / "whole", model=toy.ToyModel(dropout=0.0), source=source, **OPTIONS)
        report = {"history": result.history, "seen": source.seen}
        (folder / f"rank-{RANK}.json").write_text(json.dumps(report))
    begun = folder / "begun"
    assert states(begun / "training")
    stop = [SimpleNamespace(on_step=stop_at_nine)]
    model = toy.ToyModel(dropout=0.0, seed=1)
    result = toy.toy_fit(begun, model=model, source=Mortal(examples=21), resume=True, callbacks=stop, **OPTIONS)
    assert (result.stopped_by, result.steps, FIRST_LIFE) == ("SIGTERM", 9, False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
