"""Scores of drawn pictures. None of them alone says enough:

agreement        a classifier trained on real pictures gives a drawn one the label that was asked for. A model that
                 draws one perfect picture a label has all of it.
drawn_accuracy   the accuracy on real pictures of a classifier that was trained on drawn ones alone: only pictures as
                 varied as the real ones teach it.
nearest_drawn    the distance of a drawn picture to the nearest training picture (root mean square over the pixels,
                 from 0 to 1; the median), beside that of held-out pictures, nearest_real; `copies` is the share of
                 drawn pictures that are nearer to a training picture than all but a hundredth of the held-out ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from headway.data.row import Row

Pictures = NDArray[np.uint8]  # (picture, height, width, channel)
DrawPictures = Callable[[Sequence[str], Sequence[int], float], Pictures]  # captions, seeds, guidance
GUIDANCES = (1.0, 1.5, 2.0, 3.0, 4.0)  # among which the best is chosen
AS_GOOD = 0.02  # of agreement: of guidances this near to the best, the lowest is chosen; its pictures vary more
CHOSEN_BY = 200  # pictures for each of them
JUDGED = 1000  # pictures whose agreement is reported
TAUGHT_BY = 3000  # drawn pictures that a classifier is trained on
COMPARED = 500  # pictures whose nearest training picture is searched
OTHER_SEEDS = 1_000_000_000  # of pictures by which the guidance is chosen: none of them is judged
FEW = 0.2  # captions are labels if there are at most this many for each picture


class Classifier(Protocol):
    def __call__(self, pictures: Pictures) -> list[str]:
        """The label of each picture."""


class Classifiers(Protocol):
    """Where classifiers come from: training one is not the business of a task."""

    def real(self) -> Classifier:
        """Trained on the real training pictures."""

    def drawn(self, pictures: Pictures, labels: Sequence[str]) -> Classifier:
        """Trained on these pictures."""


@dataclass(frozen=True)
class SampleSizes:
    """How many pictures are drawn for each score."""

    chosen_by: int = CHOSEN_BY
    judged: int = JUDGED
    taught_by: int = TAUGHT_BY
    compared: int = COMPARED


def labels_of(rows: Sequence[Row]) -> list[str] | None:
    """The label of each row: its own, or its caption where captions recur; None where they are free text."""
    if all("label" in row.fields for row in rows):
        return [row.fields["label"] for row in rows]
    captions = [row.fields["caption"] for row in rows]
    return captions if 2 <= len(Counter(captions)) <= FEW * len(captions) else None


def label_scores(
    rows: Sequence[Row], labels: Sequence[str], pixels: Pictures, *, draw: DrawPictures, classifiers: Classifiers,
    sizes: SampleSizes, guidances: Sequence[float] = GUIDANCES,
) -> dict[str, float]:  # fmt: skip
    """Agreement without guidance and with the best, and the accuracy of a classifier trained on drawn pictures."""
    captions = [row.fields["caption"] for row in rows]
    judge = classifiers.real()

    def asked(count: int) -> list[int]:
        return [number % len(rows) for number in range(count)]

    def agreement(pictures: Pictures, numbers: Sequence[int]) -> float:
        found = judge(pictures)
        return float(np.mean([label == labels[number] for label, number in zip(found, numbers, strict=True)]))

    def drawn(numbers: Sequence[int], guidance: float, *, first_seed: int) -> Pictures:
        return draw([captions[number] for number in numbers], range(first_seed, first_seed + len(numbers)), guidance)

    few = asked(sizes.chosen_by)
    chosen = {guidance: agreement(drawn(few, guidance, first_seed=OTHER_SEEDS), few) for guidance in guidances}
    best = next(guidance for guidance in guidances if chosen[guidance] >= max(chosen.values()) - AS_GOOD)
    some, many = asked(sizes.judged), asked(max(sizes.judged, sizes.taught_by))
    pictures = drawn(many, best, first_seed=0)
    pupil = classifiers.drawn(pictures, [labels[number] for number in many])
    return {
        "judge_accuracy": _share_equal(judge(pixels), labels),
        "agreement": agreement(drawn(some, 1.0, first_seed=0), some),
        "agreement_guided": agreement(pictures[: sizes.judged], some),
        "best_guidance": best,
        "drawn_accuracy": _share_equal(pupil(pixels), labels),
    }


def nearest_scores(drawn: Pictures, real: Pictures, training: Pictures) -> dict[str, float]:
    near_drawn, near_real = nearest(drawn, training), nearest(real, training)
    return {
        "nearest_drawn": float(np.median(near_drawn)),
        "nearest_real": float(np.median(near_real)),
        "copies": float(np.mean(near_drawn < np.quantile(near_real, 0.01))),
    }


def nearest(pictures: Pictures, training: Pictures) -> NDArray[np.float32]:
    """(picture,): the root mean square difference to the nearest training picture, from 0 to 1."""
    flat = pictures.reshape(len(pictures), -1).astype(np.float32) / 255
    own = np.square(flat).sum(1)[:, None]
    best = np.full(len(flat), np.inf, dtype=np.float32)
    for start in range(0, len(training), 4096):
        some = training[start : start + 4096].reshape(-1, flat.shape[1]).astype(np.float32) / 255
        squared = own + np.square(some).sum(1) - 2 * flat @ some.T  # (picture, training picture)
        best = np.minimum(best, squared.min(1))
    return np.sqrt(np.maximum(best, 0) / flat.shape[1]).astype(np.float32)


def _share_equal(found: Sequence[str], wanted: Sequence[str]) -> float:
    return float(np.mean([one == other for one, other in zip(found, wanted, strict=True)]))
