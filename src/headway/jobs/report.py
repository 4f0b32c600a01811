"""The report of an evaluation of a classifier: scores of each label, the confusion matrix, and the worst mistakes."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headway.checkpoints import save_json, save_text
from headway.inspect.pictures import draw_confusion, draw_mistakes
from headway.preprocess.image import open_image
from headway.tasks.classification import Predictions

SCORES, CONFUSION, MISTAKES = "scores.json", "confusion", "mistakes"
SHEET = 36  # pictures on the sheet of mistakes
THUMBNAIL = 160  # pixels
MOST_LABELS = 40  # in the picture of the confusion matrix
CSV_START = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet would run as a formula


def by_label(predictions: Predictions) -> dict[str, dict[str, float]]:
    """Precision, recall, F1 and the number of examples of each label; 0 where a label is never predicted."""
    counts = predictions.confusion()
    right, wanted, found = counts.diagonal(), counts.sum(1), counts.sum(0)
    return {
        label: {
            "precision": float(right[i] / max(found[i], 1)),
            "recall": float(right[i] / max(wanted[i], 1)),
            "f1": float(2 * right[i] / max(found[i] + wanted[i], 1)),
            "examples": int(wanted[i]),
        }
        for i, label in enumerate(predictions.labels)
    }


def label_lines(scores: dict[str, dict[str, float]]) -> list[str]:
    """As a table for the terminal."""
    width = max((len(repr(label)) for label in scores), default=0)
    lines = [f"{'':<{width}}  precision  recall      F1  examples"]
    for label, found in scores.items():
        shares = f"{found['precision']:9.3f}  {found['recall']:6.3f}  {found['f1']:6.3f}"
        lines.append(f"{label!r:<{width}}  {shares}  {found['examples']:8,}")
    return lines


def write_report(predictions: Predictions, folder: Path) -> list[str]:
    """Writes the files and returns their names: scores.json, confusion.csv and .png, mistakes.csv and, of pictures,
    mistakes.png."""
    save_json(folder / SCORES, {**predictions.scores(), "labels": by_label(predictions)})
    counts = predictions.confusion()
    labels = predictions.labels
    header = ["label, then predicted label", *labels]
    _write_csv(
        folder / f"{CONFUSION}.csv",
        [header, *([label, *row] for label, row in zip(labels, counts.tolist(), strict=True))],
    )
    shown = _most_confused(counts)
    title = f"the {len(shown)} labels with the most mistakes of {len(labels)}" if len(shown) < len(labels) else ""
    names = [labels[i] for i in shown]
    draw_confusion(counts[np.ix_(shown, shown)], labels=names, path=folder / f"{CONFUSION}.png", title=title)
    worst = worst_mistakes(predictions)
    _write_csv(
        folder / f"{MISTAKES}.csv",
        [["where", "label", "predicted", "probability", "probability of the label"], *(each.cells() for each in worst)],
    )
    written = [SCORES, f"{CONFUSION}.csv", f"{CONFUSION}.png", f"{MISTAKES}.csv"]
    pictured = [each for each in worst[:SHEET] if "image" in each.row.fields]
    if pictured:
        pictures, captions = [each.thumbnail() for each in pictured], [each.caption() for each in pictured]
        draw_mistakes(pictures, captions, path=folder / f"{MISTAKES}.png")
        written.append(f"{MISTAKES}.png")
    return written


class Mistake:
    def __init__(self, predictions: Predictions, at: int, probabilities: np.ndarray) -> None:
        self.row = predictions.rows[at]
        self.label = predictions.labels[predictions.wanted[at]]
        self.predicted = predictions.labels[predictions.found[at]]
        self.probability = float(probabilities[at].max())
        self.of_label = float(probabilities[at, predictions.wanted[at]])

    def cells(self) -> list[Any]:
        return [self.row.where, self.label, self.predicted, f"{self.probability:.4f}", f"{self.of_label:.4f}"]

    def caption(self) -> str:
        return f"{self.label} → {self.predicted} {self.probability:.0%}"

    def thumbnail(self) -> np.ndarray:
        picture = open_image(self.row.fields["image"], where=self.row.where).convert("RGB")
        picture.thumbnail((THUMBNAIL, THUMBNAIL))
        return np.asarray(picture)


def worst_mistakes(predictions: Predictions) -> list[Mistake]:
    """All wrong predictions; first those in which the label was least probable."""
    probabilities = predictions.logits.softmax(-1).numpy()
    wrong = np.nonzero(predictions.found != predictions.wanted)[0]
    order = np.argsort(probabilities[wrong, predictions.wanted[wrong]], kind="stable")
    return [Mistake(predictions, int(at), probabilities) for at in wrong[order]]


def _most_confused(counts: np.ndarray) -> np.ndarray:
    wrong = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    return np.sort(np.argsort(-wrong, kind="stable")[:MOST_LABELS])


def _write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """Texts that a spreadsheet would run as formulas are written after an apostrophe."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    for row in rows:
        writer.writerow([f"'{cell}" if str(cell).startswith(CSV_START) else cell for cell in row])
    save_text(path, text.getvalue())
