"""What the sharded test runs beside itself: runs of two and of three ranks, each of which the test also makes alone."""

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch.distributed as dist
from support.ranks import fork_ranks

from headway.train import loop

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))
RUNS = {
    "plain": {"accumulate": 2, "save_every": 2},
    "three": {"steps": 6},
    "adam": {"steps": 6, "optimizer": "adamw", "weight_decay": 0.1, "checkpoint_activations": True, "average": 0.9},
}
SCORED = {"evaluate": toy.toy_evaluate, "score": "loss", "higher_is_better": False, "eval_every": 3}


def stop_at(step: int) -> SimpleNamespace:
    return SimpleNamespace(on_step=lambda status: status.step == step and os.kill(os.getpid(), signal.SIGTERM))


def run(folder: Path, *, seed: int = 0, **options) -> tuple[object, torch.nn.Module]:
    model = toy.ToyModel(dropout=0.0, seed=seed)
    return toy.toy_fit(folder, model=model, source=toy.ToySource(examples=21), **options), model


def sharded(folder: Path, rank: int, name: str) -> None:
    result, model = run(folder / f"{name}-sharded", shard="full", **RUNS[name], **(SCORED if name == "plain" else {}))
    torch.save(model.state_dict(), folder / f"{name}-{rank}.pt")
    (folder / f"{name}-{rank}.json").write_text(json.dumps(result.history))


def pair(rank: int) -> None:
    sharded(FOLDER, rank, "plain")
    sharded(FOLDER, rank, "adam")
    result, _ = run(FOLDER / "begun", seed=1, shard="full", resume=True, callbacks=[stop_at(9)], **RUNS["plain"])
    assert (result.stopped_by, result.steps) == ("SIGTERM", 9)
    held = sum(p.to_local().numel() for p in SEEN.learner.parameters())
    total = dist_sum(held)
    whole = sum(p.numel() for p in SEEN.model.parameters())
    assert total == whole and held <= 0.6 * whole, (held, total, whole)
    kept = [value for state in SEEN.optimizers.parts["muon"].state.values() for value in state.values()]
    assert kept and all(value.to_local().numel() <= 0.5 * value.numel() for value in kept)


def dist_sum(value: int) -> int:
    total = torch.tensor(value)
    dist.all_reduce(total)
    return int(total)


def main() -> None:
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # nobody looks at them
    begin = loop.Run.begin

    def watched(self, **options):
        SEEN.learner, SEEN.model, SEEN.optimizers = self.replica.learner, self.model, self.optimizers
        begin(self, **options)

    loop.Run.begin = watched
    fork_ranks(2, pair)
    fork_ranks(3, lambda rank: sharded(FOLDER, rank, "three"))


SEEN = SimpleNamespace()
if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    main()
