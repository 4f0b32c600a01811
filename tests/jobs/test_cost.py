"""Memory and time of a run, told before it starts: true of real processes, and micro-batches fitted to the memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.task_run import started

import headway
from headway import tasks
from headway.jobs import cost
from headway.jobs.cost import Estimator, Workload
from headway.jobs.preparation import make_source
from headway.jobs.run_config import make_plan, saved_plan
from headway.training.settings import Settings

MIB = 1 << 20
SMALL = {"model.width": 32, "model.layers": 1, "model.heads": 2}


def estimator(name: str, folder: Path, *, rows: int = 24, **settings: Any) -> Estimator:
    task, model, data = started(name, rows=rows)
    plan = make_plan(name, steps=10, settings={"device": "cpu", **settings})
    source = make_source(task, data, folder, settings=plan.settings(), say=lambda _: None)
    return Estimator(plan, task, model, Workload.of_source(source, plan.settings()))


@pytest.mark.parametrize("name", sorted(name for name in tasks.TASKS if not tasks.find(name).own_job))
def test_every_task_of_the_loop_has_an_estimate(name: str, tmp_path: Path) -> None:
    found = estimator(name, tmp_path, batch=4).cost(held_out=3)
    memory = found.memory
    assert memory.weights > 0 and 0 < memory.gradients <= 1.01 * memory.weights
    assert 0 < memory.activations < memory.growth
    assert found.steps == 10 and found.step.passes > 0 and found.step.update > 0
    assert found.seconds >= 10 * found.step.total


@pytest.mark.skipif(sys.platform != "linux", reason="the growth of a process is read from Linux")
@pytest.mark.slow
def test_memory_is_what_a_process_grows_by() -> None:
    cases = [
        {"name": "generate", "rows": 50, "batch": 24, "options": {"context": 256}},
        {"name": "translate", "rows": 400, "batch": 256},
    ]
    tests = Path(__file__).parents[1]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])}
    command = [sys.executable, tests / "support" / "process_growth.py", json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    for case, told in zip(cases, json.loads(done.stdout), strict=True):
        assert told["grown"] > 100 * MIB, case  # enough to tell tensors from libraries
        assert told["estimated"] == pytest.approx(told["grown"], rel=0.2), (case, told)


def test_micro_batches_are_fitted_to_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is divided, and is the same batch: losses without dropout differ by rounding only."""
    settings = {**SMALL, "model.dropout": 0.0, "log_every": 1, "eval_every": 0}
    needed = headway.check("classify", settings=settings).estimates["growth_bytes"]
    losses, lines, plans = [], [], []
    for available in (None, needed / 2):
        monkeypatch.setattr(cost, "available_memory", lambda available=available: available)
        said: list[str] = []
        folder = tmp_path / str(available)
        trained = headway.train("classify", steps=4, settings=settings, out=folder, say=said.append)
        losses.append([entry["loss"] for entry in trained.result.history if "loss" in entry])
        lines.append("\n".join(said))
        plans.append(saved_plan(folder).settings())
    whole, divided = plans
    assert whole.accumulate == 1 and divided.accumulate > 1
    assert (divided.batch, divided.steps) == (whole.batch, whole.steps)
    assert len(losses[0]) == len(losses[1]) == 4 and losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert "micro-batch" not in lines[0]
    assert f"a batch is computed in {divided.accumulate} parts of {32 // divided.accumulate}" in lines[1]


def test_given_micro_batches_stay_and_a_lack_of_memory_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = estimator("classify", tmp_path / "a", batch=8, accumulate=2)
    needed = tried.cost(held_out=0).memory.growth
    monkeypatch.setattr(cost, "available_memory", lambda: needed / 2)
    found = tried.cost(held_out=0)
    assert found.accumulate == 2 and "leave out accumulate" in found.warnings()[0]
    monkeypatch.setattr(cost, "available_memory", lambda: needed / 100)
    found = estimator("classify", tmp_path / "b", batch=8).cost(held_out=0)
    assert found.rows == 1 and "a single example needs" in found.warnings()[0]


def test_frozen_parameters_and_adapters_need_less(tmp_path: Path) -> None:
    task, model, data = started("classify", rows=24)
    plan = make_plan("classify", steps=10, settings={"batch": 4, "device": "cpu"}, lora=2)
    source = make_source(task, data, tmp_path, settings=plan.settings(), say=lambda _: None)
    names = [name for name, _ in model.named_parameters()]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    tried = Estimator(plan, task, model, Workload.of_source(source, plan.settings()))
    places = {each.data_ptr() for each in model.parameters()}
    shared = {name: each.data_ptr() in places for name, each in tried.trial.model.named_parameters()}
    trained = {name: each.requires_grad for name, each in tried.trial.model.named_parameters()}
    assert sum(shared.values()) > 10 and all(shared[name] != trained[name] for name in shared)  # no copy of the frozen
    adapted = tried.cost(held_out=0)
    assert all(tensor.equal(before[name]) for name, tensor in model.state_dict().items())
    assert [name for name, _ in model.named_parameters()] == names  # of the model itself nothing changes
    assert adapted.memory.gradients < adapted.memory.weights / 3
    assert adapted.memory.optimizer < estimator("classify", tmp_path / "all", batch=4).cost(held_out=0).memory.optimizer


def test_check_tells_both_and_takes_seconds(tmp_path: Path, full_timings: None) -> None:
    """10,000 rows take less than 10 seconds of a processor."""
    path = tmp_path / "rows.csv"
    words = ["the", "guests", "of", "this", "hotel", "ask", "for", "tea", "towels", "keys", "maps", "by", "a", "window"]
    lines = (f"{' '.join(words[(i + j) % 14] for j in range(5 + i % 40))} {i},{i % 3}\n" for i in range(10_000))
    path.write_text("text,label\n" + "".join(lines))
    began = time.process_time()
    report = headway.check("classify", path)
    assert time.process_time() - began < 10
    told = report.estimates
    assert told["peak_bytes"] > told["growth_bytes"] > told["weights_bytes"] > 0
    assert told["seconds"] == pytest.approx(told["steps"] * told["step_seconds"], rel=0.2)
    summary = "\n".join(report.summary())
    assert "activations of 32 examples" in summary and "steps of" in summary
    json.dumps(report.to_dict())


def test_the_time_of_a_run_is_that_of_its_steps(tmp_path: Path, full_timings: None) -> None:
    """In seconds of the processor, which other processes change less than those of the clock."""
    found = estimator("translate", tmp_path, rows=200, batch=32)
    told = found.cost(held_out=0)
    steps = []
    for group in found.groups(found.work.examples)[:6]:
        batch = found._load(group)
        began = time.thread_time()
        found.trial.run.optimizers.zero_grad()
        gradients = found.trial.run.stepper.forward_backward([batch], count=batch.count, rows=batch.rows)
        found.trial.run.update(gradients)
        steps.append(time.thread_time() - began)
    assert min(steps) / 1.5 < told.step.total < 1.5 * max(steps)


def test_settings_in_minutes_and_words() -> None:
    assert cost._time(30) == "30 s" and cost._time(0.0312) == "0.031 s" and cost._time(600) == "10.0 minutes"
    assert cost._size(3 * MIB) == "3 MiB" and cost._size(1536 * MIB) == "1.50 GiB"
    assert cost.longest_count(Settings(steps=1, batch=7)) == 7
