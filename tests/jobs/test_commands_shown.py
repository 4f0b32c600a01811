"""The commands shown when a model is saved: an input that the task takes, and a table of predictions."""

import shlex
from pathlib import Path

import pytest
from support.untrained import of_task

from headway import tasks
from headway.cli.options import say_saved
from headway.jobs.card import commands
from headway.loading import load
from headway.tasks.classify import Classify
from headway.tasks.fill import Fill


@pytest.mark.parametrize("name", tasks.TASKS)
def test_the_example_is_an_input_of_the_task(name: str) -> None:
    kind = tasks.find(name)
    rows = kind.builtin.rows(split="train", size=24)
    task = kind.from_data(kind.scan(rows), tokenizer=None, options={})
    one, *table = commands("runs/x", task)
    words = shlex.split(one)
    assert words[:3] == ["headway", "run", "runs/x"] and len(words) == 4
    parsed = task.input_kind.parse(words[3])
    if len(task.input_kind.columns) > 1 and name != "embed":
        assert parsed.keys() == set(task.input_kind.columns)
    if {"image", "audio"} & set(task.input_kind.columns):
        assert isinstance(parsed, Path) and parsed.suffix
    assert table == ([] if name == "draw" else ["headway run runs/x --file FILE --out predictions.csv"])


def test_a_classifier_of_pairs_shows_a_pair(tmp_path: Path) -> None:
    task = load(of_task("classify", tmp_path / "model")).find_task()
    assert isinstance(task, Classify) and task.input_kind.example == "Some text"
    task.pair = True
    assert task.input_kind.parse(task.input_kind.example) == ("One text", "Another text")


def test_the_mask_is_that_of_the_tokenizer(tmp_path: Path) -> None:
    bundle = load(of_task("fill", tmp_path / "model"))
    task = bundle.find_task()
    assert isinstance(task, Fill) and task.input_kind.example == "Some [MASK] text"
    assert bundle(task.input_kind.example)[0].keys() >= {"token", "score"}


def test_the_last_lines_of_a_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = of_task("vectors", tmp_path / "model")
    say_saved(folder)
    assert capsys.readouterr().out.splitlines() == [
        f"saved in {folder}; use it with:",
        f"  headway run {folder} word",
        f"  headway run {folder} --file FILE --out predictions.csv",
    ]
    (folder / "headway.json").unlink()
    say_saved(folder)
    assert capsys.readouterr().out == f"saved in {folder}\n"
