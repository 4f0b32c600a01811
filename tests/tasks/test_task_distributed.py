"""Two processes evaluate what one does: every task, every score, to the last bit."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.tasks import TASKS

HERE = Path(__file__).parent


@pytest.mark.slow
def test_scores_of_two_ranks_are_those_of_one():
    """The work is done in ranks of `task_distributed_run.py`, which says the names of the tasks it went through."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE.parent), *sys.path])}
    command = [sys.executable, HERE / "task_distributed_run.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == set(TASKS) - {"summarize", "vectors"}  # vectors are scored in one product
