"""Two ranks train as one does, whatever the number of ranks a run is started, killed and resumed with."""

import json
import os
import runpy
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.ranks import fork_ranks

from headway.training import loop
from headway.training.state import load_state, states
from headway.training.state_diff import first_difference, without_clock

HERE = Path(__file__).parent
toy = SimpleNamespace(**runpy.run_path(str(HERE / "toy_run.py")))
OPTIONS = {"accumulate": 2, "save_every": 2, "device": "cpu"}
TOLERANCE = 1e-4  # sums of float32 in another order, over 14 steps
DEATHS = {"none": 1, "full": 0}  # shard → the rank that dies


class Mortal(toy.ToySource):
    """Dies in the middle of the second epoch."""

    def load(self, indices, epoch):
        if epoch == 1 and set(indices) & set(self.epoch(1)[3]):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().load(indices, epoch)


def course(history: list[dict]) -> list[float]:
    """Loss and gradient norm of every step; the norm, because these optimisers are invariant to a wrong scale."""
    return [value for entry in history if "loss" in entry for value in (entry["loss"], entry["norm"])]


def single(folder: Path, **options) -> list[float]:
    model = toy.ToyModel(dropout=0.0, seed=options.pop("seed_of_model", 0))
    result = toy.toy_fit(folder, model=model, source=toy.ToySource(examples=21), **OPTIONS, **options)
    return course(result.history)


def stop_at(step: int) -> SimpleNamespace:
    return SimpleNamespace(on_step=lambda status: status.step == step and os.kill(os.getpid(), signal.SIGTERM))


def weights(folder: Path) -> torch.Tensor:
    model = load_state(states(folder / "training")[0])["model"]
    return torch.cat([model[name].flatten() for name in sorted(model)])


def everything(folder: Path) -> dict:
    state = load_state(states(folder / "training")[0])
    del state["status"]["elapsed"], state["journal"]  # the clock, and the length of a log that holds times
    log = (folder / "training" / "metrics.jsonl").read_text().splitlines()
    return {**state, "history": without_clock([json.loads(line) for line in log])}


def whole(folder: Path, rank: int) -> None:
    """In a rank: as one process does it."""
    source = toy.ToySource(examples=21)
    result = toy.toy_fit(folder / "whole", model=toy.ToyModel(dropout=0.0), source=source, **OPTIONS)
    report = {"history": result.history, "seen": source.seen}
    (folder / f"rank-{rank}.json").write_text(json.dumps(report))


def go_on_until_nine(folder: Path) -> None:
    model, source = toy.ToyModel(dropout=0.0, seed=1), toy.ToySource(examples=21)
    result = toy.toy_fit(folder, model=model, source=source, resume=True, callbacks=[stop_at(9)], **OPTIONS)
    assert (result.stopped_by, result.steps) == ("SIGTERM", 9)


@pytest.fixture(autouse=True)
def no_curves(monkeypatch):
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)  # nobody looks at them


def test_two_ranks_equal_one(tmp_path):
    expected = single(tmp_path / "one")
    fork_ranks(2, lambda rank: whole(tmp_path, rank))
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    for report in ranks:
        assert course(report["history"]) == pytest.approx(expected, abs=TOLERANCE)
    assert torch.allclose(weights(tmp_path / "whole"), weights(tmp_path / "one"), atol=TOLERANCE)

    # Every example once an epoch; the sixth batch is a single example, which the idle second rank loads for company.
    seen = sorted((epoch, index) for report in ranks for epoch, index in report["seen"] if epoch < 2)
    lonely = [(epoch, int(toy.ToySource(examples=21).epoch(epoch)[5][0])) for epoch in range(2)]
    assert seen == sorted([(epoch, index) for epoch in range(2) for index in range(21)] + lonely)


@pytest.mark.parametrize("shard", DEATHS)
def test_a_rank_that_died_in_the_middle_of_a_step_does_not_change_the_result(shard, tmp_path):
    """With dropout; the second rank or the first dies at step 10, the other one ends with an error, and both restart
    from step 8."""
    options, dead = {**OPTIONS, "shard": shard}, DEATHS[shard]
    sure, run = tmp_path / "sure", tmp_path / "killed"
    fork_ranks(2, lambda rank: toy.toy_fit(sure, **options))
    codes = [-signal.SIGKILL if rank == dead else 1 for rank in (0, 1)]
    with pytest.raises(AssertionError, match=rf"exit codes of the ranks: \{codes}"):
        fork_ranks(2, lambda rank: toy.toy_fit(run, source=Mortal() if rank == dead else toy.ToySource(), **options))
    assert states(run / "training")[0].name == "state-8"
    fork_ranks(2, lambda rank: toy.toy_fit(run, model=toy.ToyModel(seed=1), resume=True, **options))
    one, other = everything(sure), everything(run)
    assert (difference := first_difference(one, other)) is None, difference
    assert one["settings"]["shard"] == shard and len(one["history"]) == 14
    fork_ranks(2, lambda rank: toy.toy_fit(tmp_path / "other", **{**options, "seed": 1}))  # dropout is drawn otherwise
    assert first_difference(one, everything(tmp_path / "other")) is not None


def test_one_rank_until_step_3_two_until_9_one_to_the_end(tmp_path):
    expected, run = single(tmp_path / "one"), tmp_path / "started"
    assert len(single(run, callbacks=[stop_at(3)])) == 2 * 3
    fork_ranks(2, lambda rank: go_on_until_nine(run))
    assert not torch.allclose(weights(run), weights(tmp_path / "one"), atol=TOLERANCE)
    assert single(run, resume=True, seed_of_model=5) == pytest.approx(expected, abs=TOLERANCE)
    assert torch.allclose(weights(run), weights(tmp_path / "one"), atol=TOLERANCE)
    log = (run / "training" / "metrics.jsonl").read_text()
    assert "saved by 1 ranks, resumed by 2" in log and "saved by 2 ranks, resumed by 1" in log
