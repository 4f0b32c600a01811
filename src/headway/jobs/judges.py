"""Classifiers that judge drawn pictures, trained by `classify-image` in a folder of the run."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import numpy as np

from headway.baselines import thinned
from headway.bundle import Bundle
from headway.data.dataset import Dataset
from headway.data.row import Row
from headway.data.split import input_hash
from headway.errors import InputError
from headway.kinds.inputs import PictureInput
from headway.kinds.predictions import LabelPrediction
from headway.loading import load
from headway.preprocess.image import to_picture
from headway.tasks.distributed import world_size
from headway.tasks.draw_scores import Classifier, Pictures, SampleSizes, label_scores, labels_of, nearest_scores

MINUTES = 2.0  # of training a classifier
EVERY = 10.0  # seconds between lines of progress
SIZES = SampleSizes()
MOST = 20_000  # real pictures that the judge is trained on
FOLDER = "judge"  # in a run's training/: the classifier of real pictures, trained once

Say = Callable[[str], None]


@dataclass(frozen=True)
class TrainedClassifiers:
    """`rows` gives the real training pictures with their labels, `pixels` the pictures of rows."""

    folder: Path | None  # of the run
    judge: str | Path | None  # a model of classify-image to use instead
    rows: Callable[[], Iterator[tuple[Row, str]]]
    pixels: Callable[[Sequence[Row]], Pictures]
    minutes: float
    say: Say

    def real(self) -> Classifier:
        if self.judge is not None:
            bundle = load(self.judge)
            task = bundle.find_task()
            if not (isinstance(task.input_kind, PictureInput) and isinstance(task.prediction_kind, LabelPrediction)):
                raise InputError(f"--judge {self.judge}: a model of task classify-image is needed")
            return _classifier(bundle)
        kept = None if self.folder is None else self.folder / "training" / FOLDER
        if kept is not None and (kept / "training" / "scores.json").exists():
            return _classifier(load(kept))
        rows, _ = thinned(self.rows(), lambda row: 1, most=MOST)
        pictures = self.pixels([row for row, _ in rows])
        return self._trained("the judge", "real", pictures, [label for _, label in rows], out=kept)

    def drawn(self, pictures: Pictures, labels: Sequence[str]) -> Classifier:
        return self._trained("a classifier", "drawn", pictures, labels, out=None)

    def _trained(
        self, name: str, kind: str, pictures: Pictures, labels: Sequence[str], *, out: Path | None
    ) -> Classifier:
        self.say(f"training {name} on {len(pictures):,} {kind} pictures for {self.minutes:g} minutes")
        return _classifier(_train(pictures, labels, out=out, minutes=self.minutes))


def picture_scores(
    bundle: Bundle,
    rows: Sequence[Row],
    *,
    run: Dataset | None,
    judge: str | Path | None = None,
    sizes: SampleSizes | None = None,
    minutes: float | None = None,
    say: Say | None = None,
) -> dict[str, float]:
    """Scores of pictures drawn for the captions of `rows`. Without the data of the run that trained the model, nothing
    can be said about copies; without labels or a judge, nothing about agreement. `say` receives lines of progress."""
    if world_size() > 1:
        raise InputError("pictures are evaluated by one process, which trains classifiers; start it without torchrun")
    task, sizes = cast(Any, bundle.find_task()), sizes or SIZES
    rows = sorted(rows, key=input_hash)  # drawn at random, where some of them are enough
    on_line: Say = say or (lambda line: None)
    training = [] if run is None else list(run.train())
    real = task.pixels(rows)

    def draw(captions: Sequence[str], seeds: Sequence[int], guidance: float) -> Pictures:
        count = _Progress(f"drawing {len(captions):,} pictures, guidance {guidance:g}", len(captions), on_line)
        return task.draw_captions(bundle.model, captions, seeds, guidance, on_drawn=count)

    def labelled() -> Iterator[tuple[Row, str]]:
        return zip(training, labels_of(training) or [], strict=True)

    scores: dict[str, float] = {}
    if training:
        some = [rows[number % len(rows)].fields["caption"] for number in range(sizes.compared)]
        own = draw(some, range(len(some)), task.guidance)
        scores = nearest_scores(own, real[: sizes.compared], task.pixels(training))
    labels = labels_of(rows)
    if labels is not None and (judge is not None or (training and labels_of(training))):
        classifiers = TrainedClassifiers(bundle.folder, judge, labelled, task.pixels, minutes or MINUTES, on_line)
        scores |= label_scores(
            rows, labels, real, draw=draw, classifiers=classifiers, sizes=sizes, guidances=task.drawing.guidances
        )
    return scores


class _Progress:
    """Says what begins, and after every EVERY seconds how much of it is done."""

    def __init__(self, what: str, total: int, say: Say) -> None:
        self.total, self.say, self.said = total, say, time.monotonic()
        say(what)

    def __call__(self, done: int) -> None:
        if time.monotonic() - self.said >= EVERY and done < self.total:
            self.said = time.monotonic()
            self.say(f"  {done:,} of {self.total:,}")


def _train(pictures: Pictures, labels: Sequence[str], *, out: Path | None, minutes: float) -> Bundle:
    from headway.jobs.training import train

    with TemporaryDirectory(prefix="headway-") as made:
        folder = Path(made)
        with (folder / "pictures.csv").open("w", newline="", encoding="utf-8") as file:
            table = csv.writer(file)
            table.writerow(["image", "label"])
            for number, (pixels, label) in enumerate(zip(pictures, labels, strict=True)):
                to_picture(pixels).save(folder / f"{number}.png", compress_level=1)
                table.writerow([f"{number}.png", label])
        return train("classify-image", folder / "pictures.csv", out=out or folder / "run", minutes=minutes).bundle


def _classifier(bundle: Bundle) -> Classifier:
    def classify(pictures: Pictures) -> list[str]:
        return [found["label"] for found in bundle(list(np.asarray(pictures)))]

    return classify
