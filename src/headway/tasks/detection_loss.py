"""The loss of a detector. Queries are matched to targets one to one, by the least total cost (Hungarian matching,
Carion et al. 2020); proposals of the encoder are assigned to targets many to one (task-aligned, Feng et al. 2021);
noised targets belong to their own. All sums are over the boxes of a batch, and the part of each picture depends on that
picture alone.

With "no object" as a class, classes have a cross-entropy, as in DETR. Otherwise each class has a sigmoid, whose target
is the overlap of the box with its target (varifocal loss, Zhang et al. 2021): the score also says how good the box is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.layers.boxes import overlaps, to_corners
from headway.models.outputs import DetectionOutput, Detections

CLASS, L1, GIOU = 2.0, 5.0, 2.0  # costs of the matching; the last two are also weights of the loss
NO_OBJECT = 0.1  # weight of "no object", as almost all queries have it
FOCAL_WEIGHT, FOCAL_POWER = 0.75, 2.0
CANDIDATES = 9  # proposals of a target
SCORE_POWER, OVERLAP_POWER = 0.5, 4.0  # of what a proposal is chosen by


@dataclass(frozen=True)
class Targets:
    """The boxes of the pictures of a batch."""

    boxes: Tensor  # (batch, target, 4): centre and size, as shares of the picture
    labels: Tensor  # (batch, target); -1: padding

    @property
    def real(self) -> Tensor:  # (batch, target)
        return self.labels >= 0

    @property
    def classes(self) -> Tensor:  # (batch, target); any class where it is padding
        return self.labels.clamp(min=0)


Pairs = tuple[Tensor, Tensor, Tensor, Tensor]  # index of layer, picture, query and target, each (pair,)


def detection_loss(output: DetectionOutput, targets: Targets, *, labels: int) -> dict[str, Tensor]:
    """The parts of the loss, summed over the batch. `labels` is the number of classes without "no object"."""
    assert output.logits is not None and output.boxes is not None
    parts = _queries(stacked([*output.auxiliary, Detections(output.logits, output.boxes)]), targets, labels=labels)
    if output.proposals is not None:
        parts |= _proposals(output.proposals, targets)
    return parts


def stacked(found: Sequence[Detections]) -> Detections:
    """Of several layers: (layer, batch, query, …)."""
    return Detections(torch.stack([each.logits for each in found]), torch.stack([each.boxes for each in found]))


def _queries(found: Detections, targets: Targets, *, labels: int) -> dict[str, Tensor]:
    layer, row, query, at = match(found, targets, labels)
    wanted = targets.labels[row, at]
    iou, box_loss = box_terms(found.boxes[layer, row, query], targets.boxes[row, at])
    if found.logits.shape[-1] == labels:
        quality = torch.zeros_like(found.logits).index_put((layer, row, query, wanted), iou.to(found.logits.dtype))
        classes = varifocal(found.logits, quality).sum()
    else:
        classes_of = wanted.new_full(found.logits.shape[:3], labels).index_put((layer, row, query), wanted)
        weight = torch.where(classes_of == labels, NO_OBJECT, 1.0)  # (layer, batch, query)
        entropy = F.cross_entropy(found.logits.movedim(-1, 1), classes_of, reduction="none") * weight
        boxes_of = targets.real.sum(1).clamp(min=1)  # (batch,)
        classes = (entropy.sum(-1) / weight.sum(-1) * boxes_of).sum()
    return {"classes": classes, "boxes": box_loss.sum()}


@torch.no_grad()
def match(found: Detections, targets: Targets, labels: int) -> Pairs:
    """The pairs of query and target with the least total cost, for every layer and picture. The costs go to the host in
    one transfer."""
    from scipy.optimize import linear_sum_assignment

    logits, boxes = found.logits.float(), found.boxes.float()
    index = targets.classes[None, :, None].expand(*logits.shape[:3], -1)  # (layer, batch, query, target)
    if logits.shape[-1] == labels:
        chance = logits.sigmoid().gather(-1, index)
        right = (1 - FOCAL_WEIGHT) * (1 - chance) ** FOCAL_POWER * -(chance + 1e-8).log()
        wrong = FOCAL_WEIGHT * chance**FOCAL_POWER * -(1 - chance + 1e-8).log()
        cost = CLASS * (right - wrong)
    else:
        cost = -logits.softmax(-1).gather(-1, index)
    giou = overlaps(to_corners(boxes)[:, :, :, None], to_corners(targets.boxes)[None, :, None])[1]
    distance = (boxes[:, :, :, None] - targets.boxes[None, :, None]).abs().sum(-1)
    cost = (cost + L1 * distance - GIOU * giou).nan_to_num(1e4, 1e4, -1e4)
    costs = cost.masked_fill(~targets.real[None, :, None], torch.inf).cpu().numpy()
    pairs = []
    for layer, row in np.ndindex(costs.shape[:2]):
        count = int(np.isfinite(costs[layer, row, 0]).sum())  # padding is last
        query, at = linear_sum_assignment(costs[layer, row, :, :count])
        pairs.append(np.stack([np.full_like(query, layer), np.full_like(query, row), query, at]))
    layer, row, query, at = torch.from_numpy(np.concatenate(pairs, axis=1)).to(boxes.device)
    return layer, row, query, at


def box_terms(found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The overlap of pairs of boxes (…, 4), as a constant, and their losses."""
    iou, giou = overlaps(to_corners(found), to_corners(wanted))
    return iou.detach().clamp(0, 1), L1 * (found - wanted).abs().sum(-1) + GIOU * (1 - giou)


def varifocal(logits: Tensor, quality: Tensor) -> Tensor:
    """Cross-entropy with a quality from 0 to 1; targets weigh as much as they are good, others as they are wrong."""
    weight = torch.where(quality > 0, quality, FOCAL_WEIGHT * logits.detach().sigmoid() ** FOCAL_POWER)
    return F.binary_cross_entropy_with_logits(logits, quality, reduction="none") * weight


def _proposals(found: Detections, targets: Targets) -> dict[str, Tensor]:
    at, value = assign(found, targets)
    wanted = targets.classes.gather(1, at)  # (batch, proposal)
    quality = torch.zeros_like(found.logits).scatter(2, wanted[..., None], value[..., None].to(found.logits.dtype))
    boxes = box_terms(found.boxes, targets.boxes.gather(1, at[..., None].expand(-1, -1, 4)))[1] * value
    return {"proposed classes": varifocal(found.logits, quality).sum(), "proposed boxes": boxes.sum() / 2}


@torch.no_grad()
def assign(found: Detections, targets: Targets) -> tuple[Tensor, Tensor]:
    """The target of each proposal and its quality from 0 to 1, both (batch, proposal); 0: none. A target gets the
    proposals whose centre is inside it and that fit best, by score and overlap; a proposal wanted by several goes to
    the one it overlaps most. The best of a target has the quality of its overlap."""
    wanted, real = to_corners(targets.boxes), targets.real[..., None]
    iou = overlaps(wanted[:, :, None], to_corners(found.boxes)[:, None])[0]  # (batch, target, proposal)
    centre = found.boxes[:, None, :, :2]
    inside = ((centre > wanted[:, :, None, :2]) & (centre < wanted[:, :, None, 2:])).all(-1) & real
    index = targets.classes[..., None].expand(-1, -1, found.logits.shape[1])
    score = found.logits.sigmoid().transpose(1, 2).gather(1, index)
    fit = score**SCORE_POWER * iou**OVERLAP_POWER * inside
    best = fit.topk(min(CANDIDATES, fit.shape[2]), dim=2).indices
    taken = torch.zeros_like(inside).scatter(2, best, True) & inside & (fit > 0)
    at = (iou * taken).argmax(1)  # (batch, proposal)
    kept = fit * taken
    scale = (iou * taken).amax(2) / kept.amax(2).clamp(min=1e-12)  # (batch, target)
    return at, ((kept * scale[..., None]).gather(1, at[:, None])[:, 0]).clamp(0, 1)


def denoising_loss(
    found: Sequence[Detections], boxes: Tensor, labels: Tensor, weight: Tensor
) -> Tensor:  # boxes (batch, n, 4), labels and weight (batch, n); weight 0: padding
    """The noised queries' classes and boxes, of all layers."""
    each = stacked(found)  # (layer, batch, n, …)
    iou, box_loss = box_terms(each.boxes, boxes)
    index = labels[None, ..., None].expand(len(found), -1, -1, -1)
    quality = torch.zeros_like(each.logits).scatter(3, index, (iou * (weight > 0))[..., None].to(each.logits.dtype))
    return ((box_loss + varifocal(each.logits, quality).sum(-1)) * weight).sum()
