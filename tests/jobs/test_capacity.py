"""What `plan` says of memory is what small runs take; its other formulas are worked out by hand."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headway.cli.app import app
from headway.errors import ConfigError
from headway.jobs.capacity import (
    Layout,
    Machine,
    Shape,
    Work,
    estimate,
    memory,
    number,
    plan_shape,
    shape_of,
    step_flops,
    step_traffic,
)

CASES = [
    {"width": 128, "layers": 4, "vocab": 256, "rows": 8, "length": 128},
    {"width": 256, "layers": 2, "vocab": 4000, "rows": 4, "length": 128, "optimizer": "adamw"},
    {"width": 256, "layers": 4, "vocab": 256, "rows": 8, "length": 128, "checkpoint_activations": True},
    {"width": 384, "layers": 3, "vocab": 512, "rows": 1, "length": 64},
]
DDP, SHARD = Layout(shard=False, recompute=False), Layout(shard=True, recompute=False)
SHAPE = Shape(layers=2, width=256, vocab=1000)
WORK = Work(tokens=1e6, context=128, batch=8)


def planned(case: dict) -> float:
    shape = Shape(case["layers"], case["width"], case["vocab"], heads=4)
    work = Work(1e6, case["length"], case["rows"], "fp32", case.get("optimizer", "muon"))
    layout = Layout(shard=False, recompute=case.get("checkpoint_activations", False))
    return memory(shape, layout, ranks=1, rows=case["rows"], work=work, cuda=False).total


def test_memory_is_what_small_runs_take():
    script = Path(__file__).parents[1] / "support" / "step_memory.py"
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, script, json.dumps(CASES)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    for case, measured in zip(CASES, json.loads(done.stdout), strict=True):
        assert planned(case) == pytest.approx(measured, rel=0.15), case
    recomputed, measured = CASES[2], json.loads(done.stdout)[2]  # the check can fail: it is not the same without
    assert planned({**recomputed, "checkpoint_activations": False}) > 1.15 * measured


def test_shards_divide_what_lasts_and_not_the_activations():
    alone = memory(SHAPE, DDP, ranks=1, rows=2, work=WORK)
    spread = memory(SHAPE, SHARD, ranks=8, rows=2, work=WORK)
    assert (spread.weights, spread.optimizer) == (alone.weights / 8, alone.optimizer / 8)
    assert spread.activations == alone.activations
    assert memory(SHAPE, DDP, ranks=8, rows=2, work=WORK).weights == alone.weights == 4 * (24 * 256**2 + 256_000)


def test_work_and_traffic():
    tokens, attention = 8 * 128, 2 * 256 * 128
    assert step_flops(SHAPE, DDP, WORK) == tokens * (6 * (SHAPE.matrices + attention) + 6 * SHAPE.embedding)
    assert step_flops(SHAPE, replace(DDP, recompute=True), WORK) > step_flops(SHAPE, DDP, WORK)
    assert step_traffic(SHAPE, DDP, ranks=2, passes=4) == 4 * SHAPE.parameters
    assert step_traffic(SHAPE, DDP, ranks=1, passes=4) == 0
    assert step_traffic(SHAPE, SHARD, ranks=2, passes=4) == 2 * (12 * SHAPE.parameters + SHAPE.matrices)


def test_what_fits():
    found = {one.layout.name: one for one in estimate(shape_of(7e9), Work(1e12, 2048, 2048), Machine(gpus=64))}
    assert [name for name, one in found.items() if one.fits] == ["shard=full", "shard=full + checkpointing"]
    for one in found.values():
        assert one.rows * one.passes >= 2048 / 64 and one.fits == (one.memory.total <= 80e9)
    assert not any(one.fits for one in estimate(shape_of(7e9), Work(1e12, 2048, 64), Machine(gpus=64, memory=8e9)))


@pytest.mark.parametrize("parameters", [125e6, 1.3e9, 7e9, 70e9])
def test_a_shape_has_about_the_parameters_asked_for(parameters):
    assert shape_of(parameters).parameters == pytest.approx(parameters, rel=0.1)
    assert shape_of(parameters, layers=24).parameters == pytest.approx(parameters, rel=0.1)
    assert shape_of(parameters, layers=24).layers == 24


def test_numbers_and_refusals():
    texts = {"7B": 7e9, "80GB": 80e9, "1T": 1e12, "4,096": 4096, "3.5e11": 3.5e11}
    assert {text: number("x", text) for text in texts} == texts
    for wrong in ("", "seven", "-1B", "0"):
        with pytest.raises(ConfigError, match="tokens"):
            number("tokens", wrong)
    with pytest.raises(ConfigError, match="--params 7B"):
        plan_shape("", layers=4)
    with pytest.raises(ConfigError, match="batch"):
        estimate(SHAPE, Work(1e6, 128, 2), Machine(gpus=4))


def test_the_command_says_what_fits():
    command = ["plan", "--params", "7B", "--tokens", "1T", "--gpus", "64", "--memory", "80GB"]
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 0, told.output
    rows = [line.split() for line in told.output.splitlines() if line.startswith(("DDP", "shard"))]
    assert [row[-1] for row in rows[:4]] == ["no", "no", "yes", "yes"]
    machine = json.loads(CliRunner().invoke(app, [*command, "--json"]).output)
    assert [one["fits"] for one in machine] == [False, False, True, True]
