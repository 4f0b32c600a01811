"""`headway run` does not import the training loop, nor the libraries of scores and plots."""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, sys
from headway.cli import app
try:
    app(["run", *sys.argv[1:], "--json"])
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps(sorted(sys.modules)))
"""
HEAVY = ("torchmetrics", "sacrebleu", "matplotlib", "transformers", "datasets", "pandas", "fastapi")


@pytest.mark.parametrize(
    "name",
    [
        "language_model",
        pytest.param("translator", marks=pytest.mark.slow),
        pytest.param("embedder", marks=pytest.mark.slow),
    ],
)
def test_run_imports_nothing_of_training(name: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(name)
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder), "a text"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer, modules = map(json.loads, done.stdout.strip().splitlines())
    assert answer["input"] == "a text"
    assert [name for name in modules if name.startswith("headway.training")] == []
    assert {name.partition(".")[0] for name in modules} & {*HEAVY} == set()
    assert "headway.jobs.inference" in modules  # control: the list is not empty
