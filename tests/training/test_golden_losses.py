"""TRUST 46: the losses of 30 steps are the same numbers in every process of one machine, and those of the file
golden_losses.json within a tolerance on any machine.

A change of these losses is a change of what is computed. If it is meant to be, write the file again:
`PYTHONPATH=tests python tests/training/test_golden_losses.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("golden_losses.json")
TASKS = ("classify", "generate", "translate")  # recorded; dropout draws other numbers on other processors
TOLERANCE = 1e-3  # relative: other processors and thread counts add in another order, and 30 steps enlarge that

Losses = dict[str, list[str]]


def run() -> Losses:
    """The losses of a new process, exactly. Its hashes are random, so an order that depends on them would show."""
    tests = Path(__file__).parents[1]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path]), "PYTHONHASHSEED": "random"}
    command = [sys.executable, tests / "support" / "golden_run.py"]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    found: Losses = json.loads(done.stdout)
    assert all(len(losses) == 30 for losses in found.values())
    return found


def numbers(losses: list[str]) -> list[float]:
    return [float.fromhex(loss) for loss in losses]


@pytest.fixture(scope="module")
def losses() -> Losses:
    return run()


def test_trust_46_two_processes_have_the_same_losses(losses: Losses) -> None:
    assert losses == run()
    assert losses["translate with dropout"] != losses["translate"]


@pytest.mark.parametrize("name", TASKS)
def test_trust_46_losses_are_those_recorded(name: str, losses: Losses) -> None:
    recorded = json.loads(FILE.read_text())[name]
    assert numbers(losses[name]) == pytest.approx(recorded, rel=TOLERANCE)
    assert recorded[-1] < recorded[0]  # it learns


def test_control_another_order_of_the_examples_is_found(losses: Losses) -> None:
    recorded = json.loads(FILE.read_text())["classify"]
    assert numbers(losses["classify in another order"]) != pytest.approx(recorded, rel=TOLERANCE)


if __name__ == "__main__":
    lines = [f"{json.dumps(name)}: {json.dumps(numbers(losses))}" for name, losses in run().items() if name in TASKS]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
