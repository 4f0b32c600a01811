"""Batches of `detect`: targets padded to one length, and noised copies of them as further queries (DN-DETR, Li et al.
2022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from headway.preprocess.augment_boxes import BoxedPicture
from headway.tasks.task import Example

LABEL_NOISE, BOX_NOISE = 0.2, 0.4  # of noised targets: share of wrong labels; shift and growth, in shares of a side
NOISE = 2  # what a further draw of an example is for


def as_picture(pixels: np.ndarray, example: Example) -> BoxedPicture:
    boxes = example.get("boxes", np.zeros((0, 4), np.float32))
    return BoxedPicture(pixels, np.asarray(boxes), np.asarray(example.get("labels", ()), np.int64))


def _centred(corners: np.ndarray) -> np.ndarray:
    """Corners → centre and size."""
    return np.concatenate([(corners[:, :2] + corners[:, 2:]) / 2, corners[:, 2:] - corners[:, :2]], axis=1)


def targets_of(pictures: Sequence[BoxedPicture]) -> dict[str, Tensor]:
    """(batch, most, 4) and (batch, most); label -1: padding."""
    most = max(1, *(len(picture.labels) for picture in pictures)) if pictures else 1
    boxes, labels = torch.full((len(pictures), most, 4), 0.5), torch.full((len(pictures), most), -1)
    for row, picture in enumerate(pictures):
        count = len(picture.labels)
        boxes[row, :count] = torch.from_numpy(_centred(picture.boxes).astype(np.float32))
        labels[row, :count] = torch.from_numpy(picture.labels)
    return {"boxes": boxes, "labels": labels}


PADDING = {"denoising_groups": -1, "denoising_boxes": 0.5, "noised_boxes": 0.5}


def joined(groups: Sequence[Mapping[str, np.ndarray]]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(targets, inputs) of the noised queries, at least one for each picture."""
    most = max(1, *(len(each["noised_labels"]) for each in groups))
    out: dict[str, Tensor] = {}
    for name in groups[0]:
        first = torch.from_numpy(groups[0][name])
        values = first.new_full((len(groups), most, *first.shape[1:]), PADDING.get(name, 0))
        for row, each in enumerate(groups):
            values[row, : len(each[name])] = torch.from_numpy(each[name])
        out[name] = values
    inputs = {name: value for name, value in out.items() if name.startswith("denoising")}
    return {name: value for name, value in out.items() if name not in inputs}, inputs


def noised(picture: BoxedPicture, key: tuple[int, ...], *, count: int, labels: int) -> dict[str, np.ndarray]:
    """The targets of a picture about `count` times in all, each time with other noise: a group."""
    draw, boxes_of = np.random.default_rng((*key, NOISE)), len(picture.labels)
    groups = max(1, count // boxes_of) if boxes_of else 0
    boxes, own = np.tile(_centred(picture.boxes), (groups, 1)), np.tile(picture.labels, groups)
    shift = draw.uniform(-1, 1, boxes.shape).astype(np.float32) * BOX_NOISE
    moved = np.concatenate([boxes[:, :2] + shift[:, :2] * boxes[:, 2:] / 2, boxes[:, 2:] * (1 + shift[:, 2:])], axis=1)
    wrong = draw.random(len(own)) < LABEL_NOISE
    other = np.where(wrong, draw.integers(0, labels, len(own)), own)
    return {
        "denoising_boxes": moved.clip(0, 1).astype(np.float32),
        "denoising_labels": other.astype(np.int64),
        "denoising_groups": np.repeat(np.arange(1, groups + 1), boxes_of),
        "noised_boxes": boxes.astype(np.float32),
        "noised_labels": own.astype(np.int64),
        "noised_weight": np.full(len(own), 1 / max(1, groups), np.float32),
    }
