"""`headway evaluate A B DATA`: the difference of two models' scores, with its uncertainty."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from support.commands import headway
from support.untrained import of_task

from headway.errors import InputError
from headway.jobs.compare_scores import difference
from headway.jobs.paired import compare_models, split_models
from headway.jobs.run_config import make_plan
from headway.loading import load
from headway.tasks.counts import Counts


def counts(right: np.ndarray, kind: str = "accuracy") -> Counts:
    return Counts(np.stack([right, np.ones_like(right)], axis=1), np.ones(len(right)), kind, [])


def test_a_clear_difference_and_none() -> None:
    random = np.random.default_rng(3)
    first = (random.random(400) < 0.5).astype(int)
    better = np.where(random.random(400) < 0.2, 1, first)
    found = difference(counts(first), counts(better))
    assert found.value == pytest.approx(better.mean() - first.mean()) and found.low > 0 and found.is_clear
    assert found.second_is_better and found.p <= 0.002 and found.low < found.value < found.high
    other = first.copy()
    other[[0, 1]] = 1 - other[[0, 1]]  # two of 400
    unclear = difference(counts(first), counts(other))
    assert not unclear.is_clear and unclear.p > 0.05 and unclear.low <= 0 <= unclear.high
    same = difference(counts(first), counts(first))
    assert (same.value, same.low, same.high, same.p) == (0, 0, 0, 1.0)


def test_the_interval_covers_the_true_difference() -> None:
    """Of 60 pairs of models whose true difference is 0.1, about 95% of the intervals hold it."""
    random = np.random.default_rng(0)
    inside = 0
    for _ in range(60):
        first, second = (random.random(150) < 0.5).astype(int), (random.random(150) < 0.6).astype(int)
        found = difference(counts(first), counts(second))
        inside += found.low <= 0.1 <= found.high
    assert 52 <= inside <= 60


def test_draws_are_repeatable_and_errors_are_better_when_lower() -> None:
    random = np.random.default_rng(1)
    first, second = random.random(50), random.random(50) / 2
    one, again = (difference(counts(first, "mae"), counts(second, "mae"), seed=5) for _ in range(2))
    assert one == again != difference(counts(first, "mae"), counts(second, "mae"), seed=6)
    assert one.value < 0 and one.second_is_better and not difference(counts(second), counts(first)).lower_is_better
    with pytest.raises(ValueError, match="same examples"):
        difference(counts(first), counts(second[:9]))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classifiers; one has its labels in another order, so it answers otherwise. And a table."""
    root = tmp_path_factory.mktemp("models")
    of_task("classify", root / "a")
    bundle = load(root / "a")
    with torch.no_grad():
        list(bundle.model.parameters())[-1].add_(torch.tensor([3.0, 0, 0, 0, 0]))
    bundle.save(root / "b")
    labels = bundle.find_task().labels  # type: ignore[attr-defined]
    lines = [f"I want {n} things,{labels[n % len(labels)]}" for n in range(60)]
    (root / "data.csv").write_text("text,label\n" + "\n".join(lines) + "\n")
    return root


def test_the_command(models: Path) -> None:
    alone = [json.loads(headway("evaluate", name, "data.csv", "--json", cwd=models).stdout) for name in "ab"]
    done = headway("evaluate", "a", "b", "data.csv", cwd=models)
    assert done.returncode == 0, done.stderr
    accuracy = next(line.split() for line in done.stdout.splitlines() if line.startswith("accuracy"))
    assert accuracy[1:] == [f"{each['accuracy']:.4f}" for each in alone]
    assert "on 60 examples of data.csv" in done.stdout and "paired bootstrap, 1,000 draws" in done.stdout
    found = json.loads(headway("evaluate", "a", "b", "data.csv", "--json", cwd=models).stdout)
    gap = alone[1]["accuracy"] - alone[0]["accuracy"]
    assert found["differences"][0]["difference"] == pytest.approx(gap) and found["examples"] == 60
    same = headway("evaluate", "a", "a", "data.csv", cwd=models)
    assert "no clear difference between a and a: accuracy +0" in same.stdout


def test_a_model_that_was_trained_on_the_examples_is_named(models: Path, tmp_path: Path) -> None:
    trained, data = tmp_path / "b", models / "data.csv"
    shutil.copytree(models / "b", trained)
    (trained / "training").mkdir()
    (trained / "training" / "plan.json").write_text(json.dumps(vars(make_plan("classify", [data]))))
    found = compare_models([models / "a", trained], data)
    assert len(found.notes) == 1 and found.notes == found.to_dict()["notes"]
    assert found.notes[0].startswith(f"{trained}: the model was trained on data.csv")
    assert found.lines()[-1] == f"note: {found.notes[0]}"


def test_what_cannot_be_compared(models: Path, tmp_path: Path) -> None:
    assert split_models("a", [models / "b", models / "data.csv"]) == (["a", str(models / "b")], [models / "data.csv"])
    refused = headway("evaluate", "a", "b", "data.csv", "--report", "r", cwd=models)
    assert refused.returncode == 2 and "--report is for the evaluation of one model" in refused.stderr
    of_task("embed", tmp_path / "e")
    with pytest.raises(InputError, match="task is embed"):
        compare_models([models / "a", tmp_path / "e"])
    with pytest.raises(InputError, match="task embed has no score that is computed example by example"):
        compare_models([tmp_path / "e", tmp_path / "e"])
    training = tmp_path / "e" / "training"
    training.mkdir()
    (training / "plan.json").write_text('{"task": "embed", "data": ["mine.csv"]}')
    with pytest.raises(InputError, match="not trained on the same"):
        compare_models([tmp_path / "e", models / "a"])
