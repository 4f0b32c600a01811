"""One registry of tasks: help, documentation, built-in data and errors follow it."""

import math
import re
from pathlib import Path

import pytest
from support.task_run import started
from typer.testing import CliRunner

from headway.cli import app
from headway.errors import ConfigError, closest, did_you_mean
from headway.tasks import TASKS, find

DOCS = Path(__file__).parents[2] / "docs"


def test_every_entry_names_its_class_and_has_data() -> None:
    for name in TASKS:
        kind = find(name)
        assert kind.name == name and kind.builtin.name == name
        assert set(kind.fields) <= kind.builtin.rows(size=1)[0].fields.keys()


def test_help_and_documentation_list_every_task() -> None:
    shown = " ".join(CliRunner().invoke(app, ["train", "--help"], env={"COLUMNS": "200"}).stdout.split())
    table = (DOCS / "index.md").read_text(encoding="utf-8")
    for name, entry in TASKS.items():
        assert f"{name}: {entry.summary}" in shown
        assert re.search(rf"^\|[^|]*`{name}`", table, re.MULTILINE), f"docs/index.md: the table of tasks lacks {name}"
        assert (DOCS / "tutorials" / f"{name}.md").is_file(), f"no tutorial of {name}"


def test_an_unknown_task_gets_a_suggestion_or_the_list() -> None:
    with pytest.raises(ConfigError, match="did you mean 'classify'"):
        find("Clasify")
    with pytest.raises(ConfigError, match="tasks: generate, chat, translate, "):
        find("paint")


def test_suggestions_ignore_case_and_say_otherwise() -> None:
    assert closest("TXET", ["Text", "label"]) == ["Text"]
    assert did_you_mean("xyz", ["text"], otherwise="known: text") == "known: text"


@pytest.mark.parametrize("name", [name for name in TASKS if not find(name).own_job])
def test_an_evaluation_has_a_loss_and_a_baseline(name: str) -> None:
    """The loss breaks ties of the score; a run that is not better than the baseline says so."""
    task, model, data = started(
        name, rows=20, **({"target_limit": 4} if name in ("translate", "summarize", "transcribe") else {})
    )
    scores = task.quick_evaluate(model, list(data.valid())[:4])
    assert "loss" in scores and task.metric in scores
    baseline = task.baseline(scores)
    assert baseline is None or math.isfinite(baseline[1])
