"""Each fault of `make torture` once: it is brought about for real, in real processes, and what must hold holds."""

import random
from pathlib import Path

import pytest
from torture.faults import FAULTS
from torture.real_task import real_task
from torture.trials import NotPossibleError


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, tmp_path: Path) -> None:
    try:
        trial = FAULTS[name](random.Random(1), tmp_path)
    except NotPossibleError as reason:
        pytest.skip(str(reason))
    assert trial.times >= 1


@pytest.mark.slow
def test_a_real_task_killed_and_resumed(tmp_path: Path) -> None:
    trial = real_task(random.Random(1), tmp_path, kills=4, steps=10)
    assert trial.times >= 2
