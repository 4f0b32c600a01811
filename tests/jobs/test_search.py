"""Successive halving before a run: what it tries, that it goes on where it stopped, and what the run then uses."""

import json
from pathlib import Path

import pytest
from support.commands import headway

from headway.errors import ConfigError
from headway.jobs.overrides import parse
from headway.jobs.run_config import make_plan, saved_plan
from headway.jobs.search import candidates, search

SMALL = ["model.width=16", "model.layers=1", "model.heads=2", "batch=8", "task.vocab=60"]
LINES = "".join(f"i {'love' if i % 3 else 'hate'} number {i}\t{'good' if i % 3 else 'bad'}\n" for i in range(120))


def test_the_settings_that_are_tried() -> None:
    tuned = candidates(make_plan("classify", "data.tsv", start="model"))
    assert [each["train.lr"] for each in tuned] == [5e-5, 2.5e-5, 1e-4, 2e-4] and all(len(each) == 1 for each in tuned)
    scratch = candidates(make_plan("classify", "data.tsv"))
    assert len(scratch) == 8 and scratch[0] == {"train.lr": 0.003, "train.matrix_lr": 0.02, "model.dropout": 0.1}
    kept = candidates(make_plan("classify", "data.tsv", settings={"lr": 0.01, "matrix_lr": 0.01}))
    assert kept == [{"model.dropout": 0.1}, {"model.dropout": 0.3}]
    with pytest.raises(ConfigError, match="nothing is left to search"):
        candidates(make_plan("classify", "data.tsv", start="model", settings={"lr": 0.01}))


def test_under_dry_run_a_search_says_what_it_would_try(tmp_path: Path) -> None:
    (tmp_path / "mine.tsv").write_text(LINES)
    sets = [argument for each in [*SMALL, "lr=0.003", "matrix_lr=0.02"] for argument in ("--set", each)]
    command = ["train", "classify", "mine.tsv", *sets, "--out", "run", "--steps", "3", "--dry-run"]
    done = headway(*command, "--search", "0.05", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("search ")] == [
        "search       not run; it would try 2 candidates in 0.05 minutes (rounds: 1):",
        "search       dropout 0.1",
        "search       dropout 0.3",
    ]
    assert '"steps": 3' in done.stdout and [path.name for path in tmp_path.iterdir()] == ["mine.tsv"]
    wrong = headway(*command, "--search", "0", cwd=tmp_path)
    assert wrong.returncode != 0 and "a number above 0 is needed" in wrong.stderr


def test_a_search_goes_on_and_decides_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.tsv").write_text(LINES)
    sets = [argument for each in [*SMALL, "lr=0.003", "matrix_lr=0.02"] for argument in ("--set", each)]
    command = ["train", "classify", "mine.tsv", *sets, "--out", "run", "--steps", "3", "--search", "0.01"]
    plan, said = make_plan("classify", "mine.tsv", steps=3, settings=parse(sets[1::2])), list[str]()
    monkeypatch.chdir(tmp_path)
    search(plan, Path("run"), minutes=0.01, say=said.append)
    path = tmp_path / "run" / "search" / "search.json"
    state = json.loads(path.read_text())
    assert state["candidates"] == [{"model.dropout": 0.1}, {"model.dropout": 0.3}]
    assert [set(each) for each in state["scores"]] == [{"0", "1"}]
    assert sum(line.startswith("search       dropout") for line in said) == 2
    state["scores"][0] = {"0": -1.0}  # as if it had been stopped after the first candidate
    path.write_text(json.dumps(state))
    done = headway(*command, "--keep-states", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("search ")]
    assert len(lines) == 2 and "dropout 0.3, the best of 2" in lines[-1]
    plan = saved_plan(tmp_path / "run")
    assert plan.model["dropout"] == 0.3 and plan.settings().steps == 3 and "model.dropout" in plan.found
    assert not (tmp_path / "run" / "search" / "00").exists()
    other = headway(*command[:-1], "0.02", cwd=tmp_path)
    assert other.returncode != 0 and "holds an earlier run" in other.stderr
    again = headway(*command[:-2], "--resume", cwd=tmp_path)  # what the search found is no setting of the user's
    assert again.returncode == 0, again.stderr
