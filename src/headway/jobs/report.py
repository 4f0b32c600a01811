"""The report of an evaluation: one page, and the same as files for other programs. It is written from `Evaluated`,
which every task returns, and knows no task."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from headway.baselines import Baseline
from headway.checkpoints import save_bytes, save_json, save_text
from headway.inspect.pictures import draw_confusion, draw_mistakes
from headway.jobs.inference import PAGE
from headway.preprocess.image import open_image
from headway.printable import as_cell
from headway.tasks.evaluated import ClassScores, Evaluated, Judged

SCORES, CONFUSION, MISTAKES = "scores.json", "confusion", "mistakes"
SHEET = 36  # pictures on the sheet of mistakes
THUMBNAIL = 160  # pixels
MOST_LABELS = 40  # in the picture and in the table of the confusion matrix


@dataclass(frozen=True)
class EvaluationFacts:
    """What was evaluated, and how."""

    model: str = "a model"
    task: str = ""
    data: str = ""
    examples: str = ""  # how many of what, in words
    search: str = ""  # empty: no text was generated
    signature: str = ""  # of the scores
    notes: list[str] = field(default_factory=list)  # truncation, training on these examples
    baselines: Sequence[Baseline] = ()  # cheap models on the same examples


def class_lines(scores: ClassScores) -> list[str]:
    """Scores of each class as a table for the terminal."""
    width = max((len(repr(name)) for name in scores), default=0)
    columns = list(next(iter(scores.values())))
    titles = ["F1" if name == "f1" else name for name in columns]
    lines = [f"{'':<{width}}" + "".join(f"{title:>{max(len(title) + 2, 9)}}" for title in titles)]
    for label, found in scores.items():
        cells = [f"{value:,}" if isinstance(value, int) else f"{value:.3f}" for value in found.values()]
        row = "".join(f"{cell:>{max(len(title) + 2, 9)}}" for cell, title in zip(cells, titles, strict=True))
        lines.append(f"{label!r:<{width}}{row}")
    return lines


def write_report(evaluated: Evaluated, folder: Path, facts: EvaluationFacts | None = None) -> list[str]:
    """Writes the files and returns their names: report.html and scores.json; where there are single examples,
    mistakes.csv and, of pictures, mistakes.png; of one label of several, confusion.csv and .png."""
    from headway.jobs.report_page import report_page

    facts = facts or EvaluationFacts()
    classes, worst = evaluated.by_class(), evaluated.worst()
    more = {"signature": facts.signature, "labels": classes}
    save_json(folder / SCORES, {**evaluated.scores(), **{name: value for name, value in more.items() if value}})
    written = [SCORES]
    matrix = evaluated.confusion()
    if matrix is not None:
        written += _write_confusion(*matrix, folder)
    if evaluated.example_score:
        _write_csv(folder / f"{MISTAKES}.csv", _mistakes(evaluated, worst))
        written.append(f"{MISTAKES}.csv")
    pictured = [each for each in worst[:SHEET] if "image" in each.row.fields]
    if pictured:
        captions = [f"{each.wanted} → {each.found}" for each in pictured]
        draw_mistakes([thumbnail(each) for each in pictured], captions, path=folder / f"{MISTAKES}.png")
        written.append(f"{MISTAKES}.png")
    save_text(folder / PAGE, report_page(evaluated, facts, worst=worst))
    return [PAGE, *written]


def _write_confusion(labels: list[str], counts: np.ndarray, folder: Path) -> list[str]:
    header = ["label, then predicted label", *labels]
    rows = [[label, *row] for label, row in zip(labels, counts.tolist(), strict=True)]
    _write_csv(folder / f"{CONFUSION}.csv", [header, *rows])
    shown, title = most_confused(labels, counts)
    names = [labels[i] for i in shown]
    draw_confusion(counts[np.ix_(shown, shown)], labels=names, path=folder / f"{CONFUSION}.png", title=title)
    return [f"{CONFUSION}.csv", f"{CONFUSION}.png"]


def most_confused(labels: Sequence[str], counts: np.ndarray) -> tuple[np.ndarray, str]:
    """The labels with the most mistakes, and which they are in words; empty: all."""
    wrong = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    shown = np.sort(np.argsort(-wrong, kind="stable")[:MOST_LABELS])
    return shown, f"the {len(shown)} labels with the most mistakes of {len(labels)}" if len(shown) < len(labels) else ""


def _mistakes(evaluated: Evaluated, worst: Sequence[Judged]) -> list[list[Any]]:
    parts = list(dict.fromkeys(name for each in worst for name in each.given))
    header = ["where", "label", "predicted", evaluated.example_score, "detail", *parts]
    return [header, *(_cells(each, parts) for each in worst)]


def _cells(each: Judged, parts: Sequence[str]) -> list[Any]:
    given = [each.given.get(name, "") for name in parts]
    return [each.row.where, each.wanted, each.found, f"{each.score:.4f}", each.detail, *given]


def thumbnail(each: Judged) -> np.ndarray:
    """(height, width, 3)"""
    picture = open_image(each.row.fields["image"], where=each.row.where).convert("RGB")
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    return np.asarray(picture)


def _write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for row in rows:
        writer.writerow([as_cell(cell) for cell in row])
    save_bytes(path, text.getvalue().encode("utf-8", "backslashreplace"))  # the name of a file may be no UTF-8
