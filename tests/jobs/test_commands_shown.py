"""The commands shown when a model is saved: an input that the task takes, and a table of predictions."""

import json
import shlex
from pathlib import Path

import pytest

from headway import tasks
from headway.cli.options import say_saved
from headway.jobs.card import commands


@pytest.mark.parametrize("name", tasks.TASKS)
def test_the_example_is_an_input_of_the_task(name: str) -> None:
    kind = tasks.find(name)
    task = kind.__new__(kind)
    vars(task)["pair"] = None  # of classify: texts or pairs
    one, *table = commands("runs/x", kind)
    words = shlex.split(one)
    assert words[:3] == ["headway", "run", "runs/x"] and len(words) == 4
    parsed = task.parse_input(words[3])
    if len(task.input_fields) > 1 and name != "embed":
        assert parsed.keys() == set(task.input_fields)
    if {"image", "audio"} & set(task.input_fields):
        assert isinstance(parsed, Path) and parsed.suffix
    assert table == ([] if kind.draws else ["headway run runs/x --file FILE --out predictions.csv"])


def test_the_last_lines_of_a_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "headway.json").write_text(json.dumps({"task": "vectors", "options": {}}))
    say_saved(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        f"saved in {tmp_path}; use it with:",
        f"  headway run {tmp_path} word",
        f"  headway run {tmp_path} --file FILE --out predictions.csv",
    ]
    (tmp_path / "headway.json").unlink()
    say_saved(tmp_path)
    assert capsys.readouterr().out == f"saved in {tmp_path}\n"
