"""COCO's average precision, by faster-coco-eval."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.data.boxes import Box
from headway.errors import ConfigError

MOST = 100  # detections of a picture that count, as in COCO
Scored = tuple[int, float, tuple[float, float, float, float]]  # label, score, corners in pixels


def average_precision(
    wanted: Sequence[Sequence[Box]],
    found: Sequence[Sequence[Scored]],
    *,
    sizes: Sequence[tuple[int, int]],  # width, height of each picture
    labels: Sequence[str],
) -> dict[str, float]:
    """AP (mean over overlaps of 0.5 to 0.95), AP50, AP75, and AP50 of each label that occurs."""
    try:
        from faster_coco_eval import COCO, COCOeval_faster
    except ImportError as error:
        raise ConfigError('scores of detect need a package: pip install "headway[vision]"') from error
    truth: dict[str, Any] = {
        "images": [{"id": n, "width": wide, "height": high} for n, (wide, high) in enumerate(sizes, 1)],
        "categories": [{"id": n, "name": name} for n, name in enumerate(labels, 1)],
        "annotations": [],
    }
    for number, boxes in enumerate(wanted, 1):
        for box in boxes:
            rectangle = _rectangle(box.left, box.top, box.right, box.bottom)
            truth["annotations"].append(
                {
                    "id": len(truth["annotations"]) + 1,
                    "image_id": number,
                    "category_id": labels.index(box.label) + 1,
                    "bbox": rectangle,
                    "area": rectangle[2] * rectangle[3],
                    "iscrowd": int(box.crowd),
                }
            )
    results = [
        {"image_id": number, "category_id": label + 1, "score": score, "bbox": _rectangle(*corners)}
        for number, each in enumerate(found, 1)
        for label, score, corners in each
    ]
    present = sorted({one["category_id"] - 1 for one in truth["annotations"] if not one["iscrowd"]})
    names = {"ap": 0.0, "ap50": 0.0, "ap75": 0.0} | {f"ap50 {labels[label]}": 0.0 for label in present}
    if not results or not present:
        return names
    with contextlib.redirect_stdout(io.StringIO()):
        reference = COCO(truth)
        evaluator = COCOeval_faster(reference, reference.loadRes(results), "bbox")
        evaluator.evaluate()
        evaluator.accumulate()
    precision = np.asarray(evaluator.eval["precision"])[:, :, :, 0, -1]  # (overlap, recall, label); -1: no such label
    by_label = np.stack([precision[:, :, label].mean(1) for label in present], axis=1)  # (overlap, label)
    scores = {"ap": float(by_label.mean()), "ap50": float(by_label[0].mean()), "ap75": float(by_label[5].mean())}
    return scores | {f"ap50 {labels[label]}": float(by_label[0, at]) for at, label in enumerate(present)}


def _rectangle(left: float, top: float, right: float, bottom: float) -> list[float]:
    return [left, top, right - left, bottom - top]
