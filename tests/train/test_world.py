"""Two ranks learn what one does, whatever the number of ranks a run was begun, killed and resumed with."""

import json
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headway.train.compare import first_difference, without_clock
from headway.train.state import load_state, states

HERE = Path(__file__).parent
toy = SimpleNamespace(**runpy.run_path(str(HERE / "toy_run.py")))
OPTIONS = {"accumulate": 2, "save_every": 2, "device": "cpu"}
TOLERANCE = 1e-4  # sums of float32 in another order, over 14 steps


def course(history: list[dict]) -> list[float]:
    """Loss and gradient norm of every step; the norm, because these optimisers do not mind a wrong scale."""
    return [value for entry in history if "loss" in entry for value in (entry["loss"], entry["norm"])]


def alone(folder: Path, **options) -> list[float]:
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


def test_two_ranks_equal_one(tmp_path):
    expected = alone(tmp_path / "one")
    assert len(alone(tmp_path / "begun", callbacks=[stop_at(3)])) == 2 * 3
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*torchrun, "--max-restarts=2", "--monitor-interval=0.1", HERE / "rank_run.py", tmp_path]
    afresh = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=afresh, check=False)
    assert done.returncode == 0, done.stderr

    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    for report in ranks:
        assert course(report["history"]) == pytest.approx(expected, abs=TOLERANCE)
    assert torch.allclose(weights(tmp_path / "whole"), weights(tmp_path / "one"), atol=TOLERANCE)
    assert not torch.allclose(weights(tmp_path / "begun"), weights(tmp_path / "one"), atol=TOLERANCE)

    # Every example once an epoch; the sixth batch is a single example, which the idle second rank loads for company.
    seen = sorted((epoch, index) for report in ranks for epoch, index in report["seen"] if epoch < 2)
    lonely = [(epoch, int(toy.ToySource(examples=21).epoch(epoch)[5][0])) for epoch in range(2)]
    assert seen == sorted([(epoch, index) for epoch in range(2) for index in range(21)] + lonely)

    # A rank died in the middle of step 10, the second one or the first, and torchrun began anew: nothing is different.
    for shard, life in {"none": 1, "full": 2}.items():
        for rank in (0, 1):
            assert json.loads((tmp_path / f"begun-{shard}-{rank}.json").read_text()) == [life, 8]
        sure, killed = (everything(tmp_path / f"{name}-{shard}") for name in ("sure", "killed"))
        assert (difference := first_difference(sure, killed)) is None, difference
        assert sure["settings"]["shard"] == shard and len(sure["history"]) == 14
    assert first_difference(everything(tmp_path / "sure-none"), everything(tmp_path / "whole")) is not None

    # One rank until step 3, two until step 9, one to the end.
    assert alone(tmp_path / "begun", resume=True, seed_of_model=5) == pytest.approx(expected, abs=TOLERANCE)
    assert torch.allclose(weights(tmp_path / "begun"), weights(tmp_path / "one"), atol=TOLERANCE)
    log = (tmp_path / "begun" / "training" / "metrics.jsonl").read_text()
    assert "saved by 1 ranks, resumed by 2" in log and "saved by 2 ranks, resumed by 1" in log
