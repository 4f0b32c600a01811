"""A sharded model trains as a whole one does and writes the same files."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headway.distributed import World
from headway.errors import ConfigError, TrainingError
from headway.training.settings import Settings
from headway.training.state import load_state, states

HERE = Path(__file__).parent
toy = SimpleNamespace(**runpy.run_path(str(HERE / "toy_run.py")))
ours = SimpleNamespace(**runpy.run_path(str(HERE / "fsdp_run.py"), run_name="fsdp_run"))
TOLERANCE = 1e-5  # of losses, gradient norms and scores
WEIGHTS = 1e-4  # Adam makes much of a gradient that is nothing but rounding


def course(history: list[dict]) -> list[float]:
    return [value for entry in history if "loss" in entry for value in (entry["loss"], entry["norm"])]


def scores(history: list[dict]) -> list[float]:
    return [entry["scores"]["loss"] for entry in history if "scores" in entry]


def close(one: dict, two: dict, *, tolerance: float = WEIGHTS) -> bool:
    assert list(one) == list(two)
    return all(torch.allclose(one[name], two[name], atol=tolerance) for name in one)


def test_shards_equal_one_process(tmp_path):
    plain = ours.RUNS["plain"]
    ours.run(tmp_path / "started", callbacks=[ours.stop_at(3)], **plain)
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
    command = [sys.executable, HERE / "fsdp_run.py", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=env, check=False)
    assert done.returncode == 0, done.stderr

    for name, ranks in {"plain": 2, "adam": 2, "three": 3}.items():
        result, model = ours.run(tmp_path / name, **ours.RUNS[name], **(ours.SCORED if name == "plain" else {}))
        for rank in range(ranks):
            history = json.loads((tmp_path / f"{name}-{rank}.json").read_text())
            if rank == 0:
                assert course(history) == pytest.approx(course(result.history), abs=TOLERANCE)
                assert scores(history) == pytest.approx(scores(result.history), abs=TOLERANCE)
            assert close(model.state_dict(), torch.load(tmp_path / f"{name}-{rank}.pt", weights_only=True))
        spread, whole = (load_state(states(tmp_path / run / "training")[0]) for run in (f"{name}-sharded", name))
        assert spread.keys() == whole.keys() and spread["ties"] == whole["ties"] != []
        assert close(spread["model"], whole["model"])
        for part, saved in whole["optimizer"].items():
            for place, kept in saved["state"].items():
                assert close(kept, spread["optimizer"][part]["state"][place])

    # One rank until step 3, two with shards until 9, one again to the end.
    before = load_state(states(tmp_path / "started" / "training")[0])["model"]
    result, model = ours.run(tmp_path / "started", seed=2, resume=True, **plain)
    expected, _ = ours.run(tmp_path / "undisturbed", **plain)
    assert course(result.history) == pytest.approx(course(expected.history), abs=TOLERANCE)
    assert not close(before, model.state_dict())

    # Two ranks until step 5, one until 9, two again: every example once in each of three epochs.
    seen = [sorted(map(tuple, json.loads(path.read_text()))) for path in sorted(tmp_path.glob("seen-*.json"))]
    assert len(seen) == 5 and min(map(len, seen)) >= 9
    assert sorted(pair for own in seen for pair in own) == [(epoch, index) for epoch in range(3) for index in range(22)]
    model = toy.ToyModel(dropout=0.0)
    expected = toy.toy_fit(tmp_path / "unchanging", model=model, **ours.CHANGING)
    log = [json.loads(line) for line in (tmp_path / "changing" / "training" / "metrics.jsonl").read_text().splitlines()]
    assert course(log) == pytest.approx(course(expected.history), abs=TOLERANCE)
    assert len([entry for entry in log if "each epoch still has every example" in entry.get("warning", "")]) == 2


def test_a_rank_stops_for_the_loss_of_another(tmp_path, monkeypatch):
    """A negative control: the sum over ranks stops a run whose own values are finite."""
    toy.toy_fit(tmp_path / "own", steps=1)
    agree = World.all_reduce  # of one number, which is the loss, or of several
    monkeypatch.setattr(World, "all_reduce", lambda self, *own: [float("inf")] if len(own) == 1 else agree(self, *own))
    with pytest.raises(TrainingError, match=r"step 1: .* first seen at: no module when run again"):
        toy.toy_fit(tmp_path / "other", steps=1)


def test_an_unknown_shard_setting_is_refused():
    with pytest.raises(ConfigError, match="shard: 'half' is not one of none, full"):
        Settings(steps=1, shard="half")
