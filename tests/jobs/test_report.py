"""`headway evaluate --report`: scores of each label, the confusion matrix and the worst mistakes, of any classifier."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from support.task_run import SMALL
from typer.testing import CliRunner

from headway.bundle import Bundle
from headway.cli import app
from headway.data.row import Row
from headway.jobs.report import by_label, worst_mistakes, write_report
from headway.models.build import build
from headway.models.init import initialise
from headway.preprocess.processor import Processor
from headway.tasks.classification import Predictions
from headway.tasks.classify_image import ClassifyImage

LABELS = ["bag", "cat $x$", "=dog"]


def predictions(wanted: list[int], found: list[int], *, image: bool = True) -> Predictions:
    rows = [
        Row({"image": np.full((9, 7), 20 * n, np.uint8), "label": LABELS[w]} if image else {"text": "a"}, f"f:{n}")
        for n, w in enumerate(wanted)
    ]
    logits = torch.zeros(len(wanted), 3)
    logits[range(len(found)), found] = torch.arange(1.0, len(found) + 1)  # each more certain than the one before
    return Predictions(LABELS, rows, np.array(wanted), logits)


SOME = predictions([0, 0, 0, 1, 1, 2], [0, 1, 0, 1, 0, 0])


def test_scores_of_each_label() -> None:
    found = by_label(SOME)
    assert found["bag"] == {"precision": 0.5, "recall": pytest.approx(2 / 3), "f1": pytest.approx(4 / 7), "examples": 3}
    assert found["=dog"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "examples": 1}
    assert SOME.confusion().tolist() == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert SOME.scores()["accuracy"] == 0.5


def test_the_worst_mistake_is_first() -> None:
    found = worst_mistakes(SOME)
    assert [(each.row.where, each.label, each.predicted) for each in found] == [
        ("f:5", "=dog", "bag"),
        ("f:4", "cat $x$", "bag"),
        ("f:1", "bag", "cat $x$"),
    ]
    assert found[0].of_label < found[1].of_label < found[2].of_label and found[0].probability > 0.9


def table(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_files_of_a_report(tmp_path: Path) -> None:
    written = write_report(SOME, tmp_path / "new" / "report")
    assert sorted(written) == sorted(file.name for file in (tmp_path / "new" / "report").iterdir())
    folder = tmp_path / "new" / "report"
    assert json.loads((folder / "scores.json").read_text())["labels"]["bag"]["examples"] == 3
    matrix = table(folder / "confusion.csv")
    assert matrix[0][1:] == ["bag", "cat $x$", "'=dog"] and matrix[1] == ["bag", "2", "1", "0"]
    mistakes = table(folder / "mistakes.csv")
    assert mistakes[1][:3] == ["f:5", "'=dog", "bag"] and len(mistakes) == 4
    for name in ("confusion.png", "mistakes.png"):
        assert np.asarray(Image.open(folder / name).convert("L")).std() > 5  # something is drawn


def test_texts_have_no_sheet_of_pictures_and_many_labels_a_part(tmp_path: Path) -> None:
    assert "mistakes.png" not in write_report(predictions([0, 1], [1, 1], image=False), tmp_path)
    many = [f"label {n}" for n in range(60)]
    wanted = np.arange(60)
    logits = torch.eye(60) * 5
    logits[50:] = logits[50:].flip(0)  # ten are wrong
    big = Predictions(many, [Row({}, "")] * 60, wanted, logits)
    write_report(big, tmp_path)
    with Image.open(tmp_path / "confusion.png") as drawn:
        assert max(drawn.size) < 5000
    assert len(table(tmp_path / "confusion.csv")) == 61


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained model, and pictures of two labels."""
    folder = tmp_path_factory.mktemp("images")
    rows = []
    for number in range(6):
        label = "dark" if number % 2 else "light"
        path = folder / "data" / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (10, 8), (40 * number, 0, 0)).save(path)
        rows.append(Row({"image": path, "label": label}, str(path)))
    task = ClassifyImage.from_data(lambda: iter(rows), tokenizer=None, options={"image": 8, "stem": [4, 8, 8]})
    config = task.config(SMALL, "classic")
    model = build(config)
    initialise(model, "classic", seed=0)
    Bundle(model, "headway", config, task.processor(Processor()), task=task).save(folder / "model")
    return folder


def test_the_command(classifier: Path, tmp_path: Path) -> None:
    arguments = ["evaluate", str(classifier / "model"), str(classifier / "data")]
    done = CliRunner().invoke(app, [*arguments, "--report", str(tmp_path / "report")])
    assert done.exit_code == 0, done.output
    assert "precision  recall" in done.stdout and "'dark'" in done.stdout and "report in" in done.stdout
    assert (tmp_path / "report" / "confusion.png").exists()
    plain = CliRunner().invoke(app, arguments)
    assert "precision" not in plain.stdout and plain.stdout.splitlines()[0] == done.stdout.splitlines()[0]


def test_run_takes_several_pictures_a_folder_or_a_table(classifier: Path) -> None:
    model, data = str(classifier / "model"), classifier / "data"
    pictures = sorted(data.rglob("*.png"))
    several = CliRunner().invoke(app, ["run", model, *map(str, pictures)])
    folder = CliRunner().invoke(app, ["run", model, str(data)])
    assert several.exit_code == 0 and several.stdout == folder.stdout
    assert [line.split("\t")[0] for line in folder.stdout.splitlines()] == list(map(str, pictures))
    (data / "list.csv").write_text("file,weather\n" + "".join(f"{file.relative_to(data)},fine\n" for file in pictures))
    table = CliRunner().invoke(app, ["run", model, "--file", str(data / "list.csv"), "--json"])
    found = [json.loads(line) for line in table.stdout.splitlines()]
    assert [each["input"] for each in found] == list(map(str, pictures)) and found[0]["answer"]["label"]
    (classifier / "empty").mkdir(exist_ok=True)
    nothing = CliRunner().invoke(app, ["run", model, str(classifier / "empty")])
    assert "the folder has no pictures" in str(nothing.exception)


def test_other_tasks_have_no_report(tmp_path: Path) -> None:
    from headway.errors import InputError
    from headway.tasks.generate import Generate

    with pytest.raises(InputError, match="task generate has no report"):
        Generate.predictions(Generate.__new__(Generate), None, [])  # type: ignore[arg-type]
