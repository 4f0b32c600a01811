"""`headway.predict`: the rows of files or of a table with their predictions, as `headway run --file` writes them."""

import csv
import json
from pathlib import Path

import pytest
from support.commands import headway as command
from support.untrained import of_task

import headway
from headway.errors import DataError, InputError

ROWS = [{"text": "a fine day", "id": 1}, {"text": "a dull day", "id": 2}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("predict")
    of_task("classify", root / "model")
    (root / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return root


def test_as_the_command_writes_it(folder: Path) -> None:
    found = headway.predict(folder / "model", folder / "rows.jsonl", out=folder / "one.csv")
    assert [(row["text"], row["id"]) for row in found] == [("a fine day", 1), ("a dull day", 2)]
    assert [row["prediction"] for row in found] == [each["label"] for each in headway.load(folder / "model")(
        [row["text"] for row in ROWS]
    )]  # fmt: skip
    done = command("run", "model", "--file", "rows.jsonl", "--out", "two.csv", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "one.csv").read_text() == (folder / "two.csv").read_text()
    assert len(list(csv.DictReader((folder / "one.csv").read_text().splitlines()))) == 2


def test_a_table_in_memory_gives_the_same(folder: Path) -> None:
    pandas = pytest.importorskip("pandas")
    bundle = headway.load(folder / "model")
    wanted = headway.predict(bundle, [str(folder / "rows.jsonl")])
    assert headway.predict(bundle, ROWS) == wanted == headway.predict(bundle, pandas.DataFrame(ROWS))


def test_what_cannot_be_predicted_is_said(folder: Path) -> None:
    bundle = headway.load(folder / "model")
    with pytest.raises(InputError, match="give a file, a folder or a table"):
        headway.predict(bundle, None)
    with pytest.raises(InputError, match=r"expected a file with the suffix .csv, .jsonl, .parquet"):
        headway.predict(bundle, ROWS, out="found.txt")
    (folder / "there.csv").write_text("kept")
    with pytest.raises(InputError, match="there is such a file already"):
        headway.predict(bundle, ROWS, out=folder / "there.csv")
    assert (folder / "there.csv").read_text() == "kept"
    with pytest.raises(DataError, match="list:1: text: expected text, found a number") as caught:
        headway.predict(bundle, [{"id": 3}])
    assert "/" not in str(caught.value).split("list:1")[0]
