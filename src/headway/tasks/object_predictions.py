"""Evaluations of tasks that find several things in an input: entities in a sentence, objects in a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from headway.data.boxes import Box
from headway.data.row import Row
from headway.tasks.counts import Counts, word_lengths
from headway.tasks.detection_scores import Scored
from headway.tasks.entities import entities
from headway.tasks.evaluated import ClassScores, Evaluated, Judged, class_scores


@dataclass
class Tags(Evaluated):
    """Tags of the words of sentences; entities are what is scored."""

    values: dict[str, float]
    rows: list[Row]
    found: list[list[str]]
    wanted: list[list[str]]

    metric: str = "f1"
    example_score: ClassVar[str] = "F1 of the sentence's entities"

    def scores(self) -> dict[str, float]:
        return self.values

    def _pairs(self) -> list[tuple[set[Any], set[Any]]]:
        return [(set(entities(a)), set(entities(b))) for a, b in zip(self.found, self.wanted, strict=True)]

    def judged(self) -> list[Judged]:
        out = []
        for row, (found, wanted) in zip(self.rows, self._pairs(), strict=True):
            total = len(found) + len(wanted)
            score = 2 * len(found & wanted) / total if total else 1.0
            words = row.fields["words"]
            given = {"words": " ".join(words)}
            out.append(Judged(row, given, _named(wanted, words), _named(found, words), score))
        return out

    def counts(self) -> Counts | None:
        values = np.array([[len(found & wanted), len(found), len(wanted)] for found, wanted in self._pairs()])
        return Counts(values, word_lengths([" ".join(row.fields["words"]) for row in self.rows]), "f1", [])

    def by_class(self) -> ClassScores:
        names = sorted({entity.type for pair in self._pairs() for side in pair for entity in side})
        sums = np.zeros((3, len(names)), np.int64)  # right, found, wanted
        for found, wanted in self._pairs():
            for number, group in enumerate((found & wanted, found, wanted)):
                for entity in group:
                    sums[number, names.index(entity.type)] += 1
        right, proposed, there = sums
        return class_scores(right, proposed, there, names)


def _named(group: set[Any], words: Sequence[str]) -> str:
    return ", ".join(f"{' '.join(words[e.start : e.end])} [{e.type}]" for e in sorted(group, key=lambda e: e.start))


@dataclass
class Boxes(Evaluated):
    """Objects found in pictures. An example's score is F1 of its objects: found are those above the threshold that
    overlap a wanted one of the label by half of their union, each wanted one once."""

    values: dict[str, float]
    rows: list[Row]
    found: list[list[Scored]]
    wanted: list[list[Box]]
    labels: Sequence[str]
    threshold: float

    metric: str = "ap50"
    example_score: ClassVar[str] = "F1 of the picture's objects"

    def scores(self) -> dict[str, float]:
        return self.values

    def judged(self) -> list[Judged]:
        out = []
        for row, found, boxes in zip(self.rows, self.found, self.wanted, strict=True):
            wanted = [box for box in boxes if not box.crowd]
            kept = [each for each in found if each[1] >= self.threshold]
            right = self._matches(kept, wanted)
            total = len(kept) + len(wanted)
            score = 2 * right / total if total else 1.0
            names = [self.labels[label] for label, _, _ in kept]
            out.append(
                Judged(row, {}, _counted([box.label for box in wanted]), _counted(names), score, f"{right} matched")
            )
        return out

    def _matches(self, found: Sequence[Scored], wanted: Sequence[Box]) -> int:
        left, right = list(wanted), 0
        for label, _, corners in found:
            same = [box for box in left if box.label == self.labels[label]]
            overlaps = [overlap(corners, (box.left, box.top, box.right, box.bottom)) for box in same]
            if overlaps and max(overlaps) >= 0.5:
                left.remove(same[int(np.argmax(overlaps))])
                right += 1
        return right

    def by_class(self) -> ClassScores:
        boxes = [box.label for each in self.wanted for box in each]
        return {
            label: {"AP50": self.values[f"ap50 {label}"], "objects": boxes.count(label)}
            for label in self.labels
            if f"ap50 {label}" in self.values
        }


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes of left, top, right, bottom."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    both = max(wide, 0.0) * max(high, 0.0)
    areas = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return both / (areas - both) if areas > both else 0.0


def _counted(labels: Sequence[str]) -> str:
    return ", ".join(f"{labels.count(label)} {label}" for label in dict.fromkeys(labels)) or "nothing"
