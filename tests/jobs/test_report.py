"""`headway evaluate --report`: a page and files for every task: scores of each class, confusion matrix, calibration,
scores by length, the worst mistakes."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from support.task_run import SMALL
from typer.testing import CliRunner

from headway.bundle import Bundle
from headway.cli import app
from headway.data.boxes import Box
from headway.data.row import Row
from headway.jobs.report import EvaluationFacts, write_report
from headway.jobs.report_page import calibration_error
from headway.models.build import build
from headway.models.init import initialise
from headway.preprocess.processor import Processor
from headway.printable import as_cell
from headway.tasks.classify_image import ClassifyImage
from headway.tasks.evaluated import Evaluated
from headway.tasks.label_predictions import Labels, label_predictions
from headway.tasks.object_predictions import Boxes, Tags, overlap
from headway.tasks.targets import LabelSet, Number
from headway.tasks.text_predictions import MeanTexts, Pieces, Texts, Transcripts, edit_distance

LABELS = ["bag", "cat $x$", "=dog"]


def predictions(wanted: list[int], found: list[int], *, image: bool = True) -> Labels:
    rows = [
        Row({"image": np.full((9, 7), 20 * n, np.uint8), "label": LABELS[w]} if image else {"text": "a"}, f"f:{n}")
        for n, w in enumerate(wanted)
    ]
    logits = torch.zeros(len(wanted), 3)
    logits[range(len(found)), found] = torch.arange(1.0, len(found) + 1)  # each more certain than the one before
    return Labels(LABELS, rows, np.array(wanted), logits)


SOME = predictions([0, 0, 0, 1, 1, 2], [0, 1, 0, 1, 0, 0])


def test_scores_of_each_label() -> None:
    found = SOME.by_class()
    assert found["bag"] == {"precision": 0.5, "recall": pytest.approx(2 / 3), "f1": pytest.approx(4 / 7), "examples": 3}
    assert found["=dog"] == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "examples": 1}
    assert SOME.confusion()[1].tolist() == [[2, 1, 0], [1, 1, 0], [1, 0, 0]]
    assert SOME.scores()["accuracy"] == 0.5


def test_the_worst_mistake_is_first() -> None:
    found = SOME.worst()
    assert [(each.row.where, each.wanted, each.found) for each in found] == [
        ("f:5", "=dog", "bag"),
        ("f:4", "cat $x$", "bag"),
        ("f:1", "bag", "cat $x$"),
    ]
    assert found[0].score < found[1].score < found[2].score < 0.5
    assert found[0].detail == "predicted with 99.5%"  # e⁶ / (e⁶ + 2)


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
    big = Labels(many, [Row({}, "")] * 60, wanted, logits)
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
    task = ClassifyImage.from_data(ClassifyImage.scan(rows), tokenizer=None, options={"image": 8, "stem": [4, 8, 8]})
    config = task.config(SMALL, "classic")
    model = build(config)
    initialise(model, "classic", seed=0)
    Bundle(model, "headway", task.processor(Processor()), task=task).save(folder / "model")
    return folder


def test_the_command(classifier: Path, tmp_path: Path) -> None:
    arguments = ["evaluate", str(classifier / "model"), str(classifier / "data")]
    done = CliRunner().invoke(app, [*arguments, "--report", str(tmp_path / "report")])
    assert done.exit_code == 0, done.output
    assert "precision   recall" in done.stdout and "'dark'" in done.stdout and "report in" in done.stdout
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
    listed = classifier / "list.csv"  # beside the data, which other tests read as a whole
    listed.write_text("file,weather\n" + "".join(f"{file.relative_to(classifier)},fine\n" for file in pictures))
    table = CliRunner().invoke(app, ["run", model, "--file", str(listed), "--json"])
    found = [json.loads(line) for line in table.stdout.splitlines()]
    assert [each["input"] for each in found] == list(map(str, pictures)) and found[0]["answer"]["label"]
    (classifier / "empty").mkdir(exist_ok=True)
    nothing = CliRunner().invoke(app, ["run", model, str(classifier / "empty")])
    assert "the folder has no pictures" in str(nothing.exception)


def row(where: str, **fields: Any) -> Row:
    return Row(fields, where)


def label_sets() -> Evaluated:
    rows = [row("f:1", text="a b", label="x;y"), row("f:2", text="c", label="x")]
    logits = torch.tensor([[2.0, -2.0], [3.0, 1.0]])  # x alone; both
    return label_predictions(LabelSet(["x", "y"], 0.5, ";"), rows, logits, [np.array([0, 1]), np.array([0])])


def numbers() -> Evaluated:
    rows = [row(f"f:{n}", text="word " * n, label=str(n)) for n in range(1, 9)]
    logits = torch.arange(1.0, 9.0)[:, None] + torch.tensor([0, 0, 0, 0, 0, 0, 0, 3.0])[:, None]
    return label_predictions(Number(), rows, logits, [np.array([float(n)]) for n in range(1, 9)])


def texts(kind: Any = Texts, **more: Any) -> Evaluated:
    rows = [row("f:1", source="<b>ein Haus</b> " * 3), row("f:2", source="ein Baum")]
    return kind({"bleu": 20.0}, rows, ["a house", "a horse"], [["a house"], ["a tree", "one tree"]], **more)


def tags() -> Evaluated:
    rows = [row("f:1", words=["Ada", "met", "Bob"]), row("f:2", words=["in", "Rome"])]
    found, wanted = [["B-PER", "O", "O"], ["O", "B-LOC"]], [["B-PER", "O", "B-PER"], ["O", "B-LOC"]]
    return Tags({"f1": 0.8}, rows, found, wanted)


def boxes() -> Evaluated:
    picture = np.zeros((20, 20, 3), np.uint8)
    rows = [row("f:1", image=picture), row("f:2", image=picture)]
    found = [[(0, 0.9, (0.0, 0.0, 10.0, 10.0))], [(0, 0.8, (0.0, 0.0, 4.0, 4.0)), (0, 0.1, (0.0, 0.0, 9.0, 9.0))]]
    wanted = [[Box("cat", 0, 0, 10, 9)], [Box("cat", 10, 10, 20, 20)]]
    return Boxes({"ap50": 0.5, "ap50 cat": 0.5}, rows, found, wanted, ["cat"], 0.5)


CASES: dict[str, tuple[Evaluated, list[tuple[str, float]]]] = {  # and the mistakes: where, score
    "labels": (SOME, [("f:5", 0.0025), ("f:4", 0.0066), ("f:1", 0.1065)]),
    "label sets": (label_sets(), [("f:1", 2 / 3), ("f:2", 2 / 3)]),
    "numbers": (numbers(), [("f:8", 3.0)]),
    "texts": (texts(), [("f:2", 11.54)]),
    "summaries": (texts(MeanTexts, score_of=lambda found, wanted: float(found in wanted)), [("f:2", 0.0)]),
    "transcripts": (texts(Transcripts, fields=()), [("f:2", 0.5)]),
    "tags": (tags(), [("f:1", 2 / 3)]),
    "boxes": (boxes(), [("f:2", 0.0)]),
    "pieces": (Pieces({"loss": 1.0}, [row("f:1", text="abcd"), row("f:2", text="ef")], [8.0, 6.0]),
               [("f:2", 3.0), ("f:1", 2.0)]),
    "scores alone": (Evaluated({"loss": 2.0}), []),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_page_for_every_kind_of_evaluation(name: str, tmp_path: Path) -> None:
    evaluated, mistakes = CASES[name]
    assert [(each.row.where, each.score) for each in evaluated.worst()] == [
        (where, pytest.approx(score, abs=0.01)) for where, score in mistakes
    ]
    facts = EvaluationFacts(
        model="<m>", task="t", data="d.tsv", examples="6 examples", search="greedy search", signature="sig|1"
    )
    written = write_report(evaluated, tmp_path, facts)
    page = (tmp_path / "report.html").read_text()
    assert {"report.html", "scores.json"} <= set(written) and "&lt;m&gt;: t" in page and "<m>" not in page
    assert "6 examples of d.tsv, greedy search" in page and "sig|1" in page
    assert re.findall(r"(?:src|href)=\"(?!data:)", page) == [] and "<script" not in page
    assert re.findall(r"https?://(?!www.w3.org/2000/svg)", page) == []
    for where, _ in mistakes:
        assert where in page
    counts = evaluated.counts()
    if counts is not None and evaluated.metric in evaluated.scores() and name not in ("texts", "tags"):
        assert counts.score()[0] == pytest.approx(evaluated.scores()[evaluated.metric])


def test_text_of_data_is_never_markup(tmp_path: Path) -> None:
    write_report(texts(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;ein Haus" not in page  # the first is right, so it is no mistake
    bad = Texts({}, [row("f:1", source="<img src=x onerror=alert(1)>\u202e")], ["</dd><script>"], [["x"]])
    write_report(bad, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "<script" not in page and "<img" not in page and "&lt;img src=x" in page and "\\u202e" in page


def test_sections_of_a_page(tmp_path: Path) -> None:
    write_report(SOME, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == ["Scores", "By class", "Confusion matrix", "Calibration", "Mistakes"]
    write_report(numbers(), tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert re.findall("<h2>(.*?)</h2>", page) == ["Scores", "Predictions", "By length of the input", "Mistakes"]
    assert page.count("<circle") == 8


def test_calibration_error() -> None:
    """Of ten predictions with confidence 0.9, six are right; of ten with 0.55, five."""
    sure = np.array([0.9] * 10 + [0.55] * 10)
    right = np.array([True] * 6 + [False] * 4 + [True] * 5 + [False] * 5)
    error, bins = calibration_error(sure, right)
    assert error == pytest.approx((10 * 0.3 + 10 * 0.05) / 20)
    assert bins == [(pytest.approx(0.55), 0.5, 10), (pytest.approx(0.9), 0.6, 10)]
    assert calibration_error(np.ones(4), np.ones(4, bool))[0] == 0


def test_cells_of_a_spreadsheet() -> None:
    assert [as_cell(each) for each in ("=1+1", "-5.2e3", "-x", "+1", "@a", "a", -3)] == [
        "'=1+1", "-5.2e3", "'-x", "+1", "'@a", "a", -3,
    ]  # fmt: skip


def test_measures() -> None:
    assert edit_distance(["a", "b", "c"], ["a", "x", "c", "d"]) == 2 and edit_distance([], ["a"]) == 1
    assert overlap((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3) and overlap((0, 0, 1, 1), (2, 2, 3, 3)) == 0
