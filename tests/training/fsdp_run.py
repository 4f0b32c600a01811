"""Runs of two and three ranks in processes of their own; `test_fsdp` compares most of them with one process."""

import json
import os
import runpy
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
import torch._dynamo  # an optimiser's first step does: once here, and every rank has it
import torch.distributed as dist
from support.ranks import fork_ranks
from torture.child_process import FaultySource

from headway.data.batch import Loss
from headway.distributed import init_distributed
from headway.errors import TrainingError
from headway.training import loop
from headway.training.fsdp import FSDPReplica  # noqa: F401 - for the ranks, as well
from headway.training.state import states

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))
RUNS = {
    "plain": {"accumulate": 2, "save_every": 2},
    "three": {"steps": 6},
    "adam": {"steps": 6, "optimizer": "adamw", "weight_decay": 0.1, "checkpoint_activations": True, "average": 0.9},
}
CHANGING = {"steps": 18, "save_every": 3}  # three epochs
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
    changing(rank, until=5)
    faults(rank)
    result, _ = run(FOLDER / "started", seed=1, shard="full", resume=True, callbacks=[stop_at(9)], **RUNS["plain"])
    assert (result.stopped_by, result.steps) == ("SIGTERM", 9)
    held = sum(p.to_local().numel() for p in SEEN.trained.parameters())
    total = dist_sum(held)
    whole = sum(p.numel() for p in SEEN.model.parameters())
    assert total == whole and held <= 0.6 * whole, (held, total, whole)
    kept = [value for state in SEEN.optimizers.parts["muon"].state.values() for value in state.values()]
    assert kept and all(value.to_local().numel() <= 0.5 * value.numel() for value in kept)


def changing(rank: int, *, until: int) -> None:
    """A part of a run whose number of ranks changes; records the examples of each rank."""
    source, folder = toy.ToySource(), FOLDER / "changing"
    stop = [stop_at(until)] if until < CHANGING["steps"] else []
    resume = until > 5
    model = toy.ToyModel(dropout=0.0, seed=int(resume))
    result = toy.toy_fit(folder, model=model, source=source, resume=resume, callbacks=stop, **CHANGING)
    assert result.steps == until
    (FOLDER / f"seen-{until}-{rank}.json").write_text(json.dumps(source.seen))


def added(model: torch.nn.Module, batch) -> Loss:
    """Adds the factor of a bad example to the loss, so that its gradient is unchanged."""
    return Loss(toy.toy_loss(model, batch).total + batch.targets["factor"] - 1)


def multiplied(model: torch.nn.Module, batch) -> Loss:
    return Loss(toy.toy_loss(model, batch).total * batch.targets["factor"])


def faults(rank: int) -> None:
    """An example that only the second rank sees makes its loss infinite, and all ranks stop; or its gradient too
    large for fp16, and all ranks skip the step."""
    world = init_distributed(torch.device("cpu"))
    bad = int(toy.ToySource().epoch(0)[2][1])
    for shard in ("none", "full"):
        for loss, precision in ((added, "fp32"), (multiplied, "fp16")):
            folder, model = FOLDER / f"bad-{shard}-{precision}", toy.ToyModel(dropout=0.0)
            source = FaultySource({(0, bad): float("inf")})
            options = {"shard": shard, "precision": precision, "loss": loss, "save_every": 1}
            try:
                toy.toy_fit(folder, model=model, source=source, **options)
                raise AssertionError("the run went on")
            except TrainingError as error:
                errors = world.all_gather(str(error))
            assert errors[0] == errors[1] and errors[0].startswith("step 3:") and f"toy.tsv:{bad + 1}" in errors[0], (
                errors
            )
            assert "first seen at: the loss itself;" in errors[0] and f"{folder}/training/autopsy-3`" in errors[0], (
                errors
            )
            assert [path.name for path in states(folder / "training")] == ["state-2", "state-1"]
        source, options = FaultySource({(0, bad): 1e36}), {"shard": shard, "precision": "fp16", "steps": 4}
        model = toy.ToyModel(dropout=0.0)
        result = toy.toy_fit(FOLDER / f"large-{shard}", model=model, source=source, loss=multiplied, **options)
        skipped = [entry["step"] for entry in result.history if entry.get("skipped")]
        assert 3 in skipped and len(skipped) < 4 and world.all_gather(skipped) == [skipped] * 2, skipped


def dist_sum(value: int) -> int:
    total = torch.tensor(value)
    dist.all_reduce(total)
    return int(total)


def main() -> None:
    torch.set_num_threads(1)
    loop.draw_curves = lambda *_: None  # not needed
    start = loop.TrainingRun.start

    def watched(self, **options):
        SEEN.trained, SEEN.model, SEEN.optimizers = self.replica.trained, self.model, self.optimizers
        start(self, **options)

    loop.TrainingRun.start = watched
    fork_ranks(2, pair)
    fork_ranks(1, lambda rank: changing(rank, until=9))
    fork_ranks(2, lambda rank: changing(rank, until=18))
    fork_ranks(3, lambda rank: sharded(FOLDER, rank, "three"))


SEEN = SimpleNamespace()
if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    main()
