"""`run --file` reads what training reads: the same formats, the same columns, without headers and targets."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import headway
from headway import jobs
from headway.bundle import Bundle
from headway.cli import app
from headway.errors import DataError, InputError
from headway.jobs.inputs import read_inputs
from headway.tasks import find

SMALL = {"model.width": 16, "model.layers": 1, "model.heads": 2, "eval_every": 0, "vocab": 200}
ROWS = [(f"i {'love' if i % 2 else 'hate'}, number {i}", "fine" if i % 2 else "awful") for i in range(60)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> jobs.Trained:
    folder = tmp_path_factory.mktemp("classifier")
    lines = "".join(f'{i},"{text}",{label}\n' for i, (text, label) in enumerate(ROWS))
    (folder / "mine.csv").write_text("number,opinion,verdict\n" + lines)
    columns = {"text": "opinion", "label": "verdict"}
    return jobs.train("classify", folder / "mine.csv", columns=columns, out=folder / "run", steps=1, settings=SMALL)


def bundle_for(task: str, run: jobs.Trained) -> Bundle:
    """A bundle whose task is another one: reading inputs needs no more of it."""
    bundle = headway.load(run.folder)
    bundle.task = find(task)(tokenizer=bundle.processor.tokenizer)  # type: ignore[arg-type]
    bundle.folder = None
    return bundle


def test_the_file_of_a_run_is_read_by_the_columns_of_the_run(run: jobs.Trained) -> None:
    data = run.folder.parent / "mine.csv"
    assert read_inputs(data, run.bundle) == [text for text, _ in ROWS]
    shown = CliRunner().invoke(app, ["run", str(run.folder), "--file", str(data), "--json"]).stdout
    assert [json.loads(line)["input"] for line in shown.splitlines()] == [text for text, _ in ROWS]
    by_number = ["run", str(run.folder), "--file", str(data), "--text", "number", "--json"]
    assert json.loads(CliRunner().invoke(app, by_number).stdout.splitlines()[3])["input"] == "3"


@pytest.mark.parametrize(
    ("task", "name", "content", "inputs"),
    [
        ("classify", "x.tsv", "i love it\tgood\ni hate it\tbad\n", ["i love it", "i hate it"]),
        ("classify", "x.txt", "i love it\tgood\ni hate it\tbad\n", ["i love it", "i hate it"]),
        ("classify", "x.txt", "i love it\n\nand, commas\n", ["i love it", "", "and, commas"]),
        ("classify", "x.txt", "__label__x i love it\n\n__label__y __label__x c\n", ["i love it", "c"]),
        ("classify", "x.csv", "text\ni love it\n", ["i love it"]),
        ("classify", "x.jsonl", '{"text": "a b", "label": "x"}\n{"text": "c", "label": "y"}\n', ["a b", "c"]),
        ("classify", "x.jsonl", '{"text": "a b"}\n', ["a b"]),
        ("translate", "x.tsv", "source\ttarget\na b\tc d\n", ["a b"]),
        ("translate", "x.tsv", "a b\tc d\n", ["a b"]),
        ("tag", "x.conll", "Ada B-PER\nmet O\n\nBob B-PER\n", [["Ada", "met"], ["Bob"]]),
        ("answer", "x.jsonl", '{"question": "q", "context": "c"}\n', [{"question": "q", "context": "c"}]),
        ("embed", "x.tsv", "a\tb\nsea\tocean\n", [{"a": "sea", "b": "ocean"}]),
        ("embed", "x.csv", "text\nthe sea\n", ["the sea"]),
        ("generate", "x.csv", "text\nonce upon\n", ["once upon"]),
        ("generate", "x.txt", "once\tupon\na\ttime\n", ["once\tupon", "a\ttime"]),
    ],
)
def test_formats(task: str, name: str, content: str, inputs: list[Any], run: jobs.Trained, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    assert read_inputs(tmp_path / name, bundle_for(task, run)) == inputs


def test_what_cannot_be_read_is_named(run: jobs.Trained, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"missing\.csv: no such file"):
        read_inputs(tmp_path / "missing.csv", run.bundle)
    (tmp_path / "x.txt").write_text("one\ntwo\n")
    with pytest.raises(InputError, match="--text names a column, but this file is read line by line"):
        read_inputs(tmp_path / "x.txt", run.bundle, columns={"text": "opinion"})
    (tmp_path / "x.csv").write_text("first\na\n")
    with pytest.raises(DataError, match='no column for "question"'):
        read_inputs(tmp_path / "x.csv", bundle_for("answer", run))
