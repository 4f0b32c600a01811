"""Settings of `detect` that follow from the pictures and their boxes: resolution, number of queries, length."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.data.boxes import usable
from headway.data.facts import Facts
from headway.errors import DataError
from headway.preprocess.image import open_image
from headway.tasks.task import Choice

STEP = 16  # pixels that sides are a multiple of
PIXELS_OF_AN_OBJECT = 20  # that the smallest kind of object should span
SIDES = (96, 512)  # pixels of the longer side
QUERIES = (20, 300)
SPARE = 3.0  # queries for each box of a crowded picture
MEASURED = 300  # pictures of which mean and standard deviation are computed
SEEN = 12_000  # pictures that a run without a time limit shows the model
EPOCHS = (8, 80)
EVALUATIONS = 6  # of a run
UPRIGHT_T = 2.0  # t statistic from which the places of boxes say that pictures have an upper side
UPRIGHT_PICTURES = 50  # with fewer, pictures have one


@dataclass(frozen=True)
class Statistics:
    """What the choice depends on."""

    pictures: int
    size: tuple[int, int]  # median width and height
    crowded: int  # boxes of a picture, 99th percentile
    smallest: float  # side of the kind of object that is smallest, its median, in pixels
    usual: float  # side of a box as a share of the picture, median
    upright: bool = True  # whether boxes prefer a height of the picture, or are larger there; False: turned upside down

    @staticmethod
    def colours(facts: Facts, size: tuple[int, int]) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel."""
        pictures = [
            np.asarray(open_image(row.fields["image"], where=row.where).convert("RGB").resize(size[::-1]))
            for row in facts.some(MEASURED)
        ]
        values = np.stack(pictures).reshape(-1, 3) / 255.0
        return values.mean(0).round(4).tolist(), values.std(0).clip(min=1e-2).round(4).tolist()


def statistics(facts: Facts) -> Statistics:
    sizes, counts, shares, heights = [], [], [], []
    sides: dict[str, list[float]] = defaultdict(list)
    for row in facts.rows:
        width, height = row.fields["size"]
        sizes.append((width, height))
        boxes = [box for box in usable(row) if not box.crowd]
        counts.append(len(boxes))
        for box in boxes:
            side = math.sqrt((box.right - box.left) * (box.bottom - box.top))
            sides[box.label].append(side)
            shares.append(side / math.sqrt(width * height))
        heights.append(
            [((box.top + box.bottom) / 2 / height - 0.5, shares[at - len(boxes)]) for at, box in enumerate(boxes)]
        )
    if not shares:
        raise DataError("the data has no boxes to learn from")
    wide, high = np.median(np.array(sizes), axis=0).astype(int).tolist()
    smallest = min(float(np.median(each)) for each in sides.values())
    usual, crowded = float(np.median(shares)), int(np.percentile(counts, 99))
    return Statistics(len(sizes), (wide, high), crowded, smallest, usual, is_upright(heights, usual))


def is_upright(pictures: Sequence[Sequence[tuple[float, float]]], usual: float) -> bool:
    """Whether the mean height of the boxes of a picture differs from the middle, or large boxes from small ones.
    `pictures` have for each box its height above the middle and its side."""
    found = [boxes for boxes in pictures if boxes]
    if len(found) < UPRIGHT_PICTURES:
        return True
    places = np.array([np.mean([y for y, _ in boxes]) for boxes in found])
    larger = np.array([np.mean([y * math.log(side / usual) for y, side in boxes]) for boxes in found])
    deviation = [abs(each.mean()) / max(each.std(ddof=1) / math.sqrt(len(each)), 1e-12) for each in (places, larger)]
    return max(deviation) >= UPRIGHT_T


def choose(found: Statistics, *, recipe: str, given: Mapping[str, Any]) -> Choice:
    batch = int(given.get("train.batch") or 8)
    epochs = max(EPOCHS[0], min(EPOCHS[1], round(SEEN / found.pictures)))
    steps = math.ceil(found.pictures / batch)
    settings: dict[str, Any] = {"train.eval_every": max(1, steps * max(1, epochs // EVALUATIONS))}
    if recipe == "finetune":
        return Choice(settings)
    height, width = resolution(found)
    queries = max(QUERIES[0], min(QUERIES[1], 10 * math.ceil(SPARE * found.crowded / 10)))
    settings |= {
        "train.epochs": epochs,
        "model.dropout": 0.0,
        "task.height": height,
        "task.width": width,
        "task.queries": queries,
        "task.anchor_size": round(found.usual, 3),
        "task.upside_down": not found.upright,
    }
    span = found.smallest * width / found.size[0]
    why = f"{width} × {height} pixels, so that the smallest kind of object spans about {span:.0f}; {queries} queries"
    if not found.upright:
        why += "; boxes are as often above as below, so pictures are also turned upside down"
    return Choice(settings, {"pictures": why})


def resolution(found: Statistics) -> tuple[int, int]:
    """(height, width): large enough for the smallest kind of object, and not larger than the pictures."""
    wide, high = found.size
    longest = max(found.size)
    wanted = min(longest, max(SIDES[0], min(SIDES[1], longest * PIXELS_OF_AN_OBJECT / found.smallest)))
    scale = wanted / longest
    return tuple(max(STEP, STEP * round(side * scale / STEP)) for side in (high, wide))  # type: ignore[return-value]
