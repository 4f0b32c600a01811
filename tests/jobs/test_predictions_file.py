"""`headway run --out`: predictions beside the columns of the inputs, in CSV, JSON lines and Parquet."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from support.commands import headway
from support.untrained import of_task

from headway.errors import ConfigError, InputError
from headway.jobs import predictions_file
from headway.jobs.predictions_file import write_predictions
from headway.loading import load

ROWS = [(n, f"I want {n} things, please", "=1+1" if n == 3 else "-5" if n == 4 else f"note {n}") for n in range(9)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier, and a table in three formats."""
    root = tmp_path_factory.mktemp("predictions")
    of_task("classify", root / "model")
    with (root / "data.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("number", "text", "remark"), *ROWS])
    rows = [{"number": n, "text": text, "remark": {"deep": [n, None]}} for n, text, _ in ROWS]
    (root / "data.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return root


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def answers(folder: Path) -> list[dict[str, Any]]:
    shown = headway("run", "model", "--file", "data.csv", "--json", cwd=folder).stdout
    return [json.loads(line)["answer"] for line in shown.splitlines()]


def test_csv_keeps_every_column_and_the_order(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = answers(folder)
    monkeypatch.setattr(predictions_file, "CHUNK", 4)  # several parts
    done = headway("run", "model", "--file", "data.csv", "--out", "out.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out.csv: 9 rows; added: prediction, score\n"
    found = table(folder / "out.csv")
    assert list(found[0]) == ["number", "text", "remark", "prediction", "score"]
    assert [row["text"] for row in found] == [text for _, text, _ in ROWS]
    assert [row["prediction"] for row in found] == [each["label"] for each in wanted]
    assert [float(row["score"]) for row in found] == pytest.approx([each["score"] for each in wanted], abs=1e-5)
    assert [row["remark"] for row in found][3:5] == ["'=1+1", "-5"]  # a formula, and a number
    assert list(folder.glob(".*")) == []  # nothing is left of writing


def test_an_existing_file_is_kept(folder: Path) -> None:
    (folder / "mine.csv").write_text("mine")
    done = headway("run", "model", "--file", "data.csv", "--out", "mine.csv", cwd=folder)
    assert done.returncode == 2 and "there is such a file already" in done.stderr
    assert (folder / "mine.csv").read_text() == "mine"


def test_json_lines_keep_values_as_they_are(folder: Path) -> None:
    done = headway("run", "model", "--file", "data.jsonl", "--out", "out.jsonl", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in (folder / "out.jsonl").read_text().splitlines()]
    assert found[2].keys() == {"number", "text", "remark", "prediction", "score"}
    assert found[2]["number"] == 2 and found[2]["remark"] == {"deep": [2, None]}
    assert [each["prediction"] for each in found] == [each["label"] for each in answers(folder)]


def test_parquet(folder: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    done = headway("run", "model", "--file", "data.jsonl", "--out", "out.parquet", cwd=folder)
    assert done.returncode == 0, done.stderr
    found = parquet.read_table(folder / "out.parquet").to_pylist()
    assert [each["number"] for each in found] == list(range(9)) and found[1]["remark"] == {"deep": [1, None]}
    assert [each["prediction"] for each in found] == [each["label"] for each in answers(folder)]


def test_parquet_without_pyarrow(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"headway\[parquet\]"):
        write_predictions(load(folder / "model"), [({"input": "a"}, "a")], folder / "x.parquet")
    assert not (folder / "x.parquet").exists()


def test_names_that_are_taken_and_rows_that_differ(folder: Path) -> None:
    (folder / "taken.jsonl").write_text('{"text": "a", "prediction": 1}\n{"text": "b", "extra": 2}\n')
    done = headway("run", "model", "--file", "taken.jsonl", "--out", "taken.csv", cwd=folder)
    assert "added: prediction_2, score" in done.stdout, done.stderr
    found = table(folder / "taken.csv")
    assert list(found[0]) == ["text", "prediction", "extra", "prediction_2", "score"]
    assert [(row["prediction"], row["extra"]) for row in found] == [("1", ""), ("", "2")]
    bundle = load(folder / "model")
    with pytest.raises(InputError, match="the column 'late' is not in the first rows"):
        write_predictions(bundle, [({"a": 1}, "x"), ({"late": 1}, "y")], folder / "late.csv")
    assert not (folder / "late.csv").exists()  # a file is complete or absent


def test_inputs_of_the_command_line_and_of_lines(folder: Path) -> None:
    done = headway("run", "model", "one", "two", "--out", "given.csv", cwd=folder)
    assert done.returncode == 0 and [row["input"] for row in table(folder / "given.csv")] == ["one", "two"]
    (folder / "lines.txt").write_text("one\n\nthree\n")
    assert headway("run", "model", "--file", "lines.txt", "--out", "lines.csv", cwd=folder).returncode == 0
    assert [row["input"] for row in table(folder / "lines.csv")] == ["one", "", "three"]
    both = headway("run", "model", "one", "--file", "lines.txt", "--out", "both.csv", cwd=folder)
    assert both.returncode == 2 and "not both" in both.stderr
    wrong = headway("run", "model", "one", "--out", "x.docx", cwd=folder)
    assert wrong.returncode == 2 and ".csv, .jsonl or .parquet" in wrong.stderr
    assert "nothing to predict" in headway("run", "model", "--out", "none.csv", cwd=folder).stderr


def test_a_row_without_a_label_is_predicted_all_the_same(folder: Path) -> None:
    (folder / "some.csv").write_text("text,label\na,cancel\nb,\nc,unheard of\n")
    done = headway("run", "model", "--file", "some.csv", "--out", "some-out.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert [row["label"] for row in table(folder / "some-out.csv")] == ["cancel", "", "unheard of"]


def test_half_of_a_surrogate_pair_is_written_as_its_escape(folder: Path) -> None:
    bundle = load(folder / "model")
    for name in ("half.jsonl", "half.csv"):
        write_predictions(bundle, [({"input": "a\ud800b"}, "a")], folder / name)
    assert json.loads((folder / "half.jsonl").read_text())["input"] == "a\ud800b"
    assert table(folder / "half.csv")[0]["input"] == "a\\ud800b"
