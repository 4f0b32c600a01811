"""The parts of a detector's loss: matching, assignment of proposals, overlaps."""

import itertools

import pytest
import torch

from headway.layers.boxes import overlaps, to_corners
from headway.models.outputs import DetectionOutput, Detections
from headway.tasks.detection_loss import Targets, assign, box_terms, denoising_loss, detection_loss, match, varifocal

BOXES, LABELS = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.7, 0.6, 0.3, 0.2]]), torch.tensor([0, 2])
TARGET = Targets(BOXES[None], LABELS[None])


def padded(targets: Targets, count: int, *, most: int = 4) -> Targets:
    """The first boxes of a picture, and padding."""
    boxes, labels = torch.full((1, most, 4), 0.5), torch.full((1, most), -1)
    boxes[:, :count], labels[:, :count] = targets.boxes[:, :count], targets.labels[:, :count]
    return Targets(boxes, labels)


def joined(*targets: Targets) -> Targets:
    return Targets(torch.cat([each.boxes for each in targets]), torch.cat([each.labels for each in targets]))


def test_overlaps_by_hand() -> None:
    a, b = torch.tensor([0.0, 0.0, 2.0, 2.0]), torch.tensor([1.0, 1.0, 3.0, 3.0])
    iou, giou = overlaps(a, b)
    assert iou.item() == pytest.approx(1 / 7) and giou.item() == pytest.approx(1 / 7 - 2 / 9)
    apart = overlaps(a, b + 5)
    assert apart[0].item() == 0 and apart[1].item() < 0
    assert to_corners(torch.tensor([0.5, 0.5, 0.2, 0.4])).tolist() == pytest.approx([0.4, 0.3, 0.6, 0.7])


@pytest.mark.parametrize("no_object", [False, True])
def test_matching_has_the_least_total_cost(no_object: bool) -> None:
    torch.manual_seed(0)
    logits, boxes = torch.randn(5, 3 + no_object), torch.rand(5, 4) * 0.4 + 0.2
    layer, row, query, at = match(Detections(logits[None, None], boxes[None, None]), padded(TARGET, 2), 3)
    assert sorted(at.tolist()) == [0, 1] and not layer.any() and not row.any()

    def cost(queries: tuple[int, ...]) -> float:
        total = 0.0
        for number, box, label in zip(queries, BOXES, LABELS, strict=True):
            chance = (logits.softmax(-1) if no_object else logits.sigmoid())[number, label]
            focal = 0.25 * (1 - chance) ** 2 * -(chance + 1e-8).log() - 0.75 * chance**2 * -(1 - chance + 1e-8).log()
            giou = overlaps(to_corners(boxes[number]), to_corners(box))[1]
            l1 = (boxes[number] - box).abs().sum()
            total += float((-chance if no_object else 2 * focal) + 5 * l1 - 2 * giou)
        return total

    found = tuple(query[at.argsort()].tolist())
    assert cost(found) == pytest.approx(min(cost(pair) for pair in itertools.permutations(range(5), 2)), abs=1e-5)


def test_proposals_inside_a_target_are_assigned_to_it() -> None:
    boxes = torch.tensor([[0.3, 0.3, 0.2, 0.2], [0.32, 0.3, 0.2, 0.2], [0.9, 0.1, 0.1, 0.1], [0.7, 0.6, 0.3, 0.2]])
    at, quality = assign(Detections(torch.zeros(1, 4, 3), boxes[None]), padded(TARGET, 2))
    assert at[0, [0, 1, 3]].tolist() == [0, 0, 1] and (quality[0] > 0).tolist() == [True, True, False, True]
    assert quality[0, 0].item() == pytest.approx(1.0) and quality[0, 1] < quality[0, 0]


@pytest.mark.parametrize("no_object", [False, True])
def test_a_perfect_output_has_a_small_loss_and_empty_pictures_are_allowed(no_object: bool) -> None:
    boxes = torch.cat([BOXES, torch.rand(3, 4) * 0.2 + 0.4])[None].repeat(2, 1, 1)
    logits = torch.full((2, 5, 3 + no_object), -9.0)
    logits[0, 0, 0] = logits[0, 1, 2] = 9.0
    if no_object:
        logits[0, 2:, 3] = logits[1, :, 3] = 9.0
    targets = joined(padded(TARGET, 2), padded(TARGET, 0))
    output = DetectionOutput(torch.zeros(2, 5, 1), logits=logits, boxes=boxes)
    assert sum(detection_loss(output, targets, labels=3).values()).item() < 1e-2
    output.boxes = boxes + 0.1
    assert sum(detection_loss(output, targets, labels=3).values()).item() > 1
    noised = denoising_loss(
        [Detections(logits[:1, :2, :3], boxes[:1, :2])], BOXES[None], LABELS[None], torch.ones(1, 2)
    )
    assert noised.item() < 1e-2 or no_object


@pytest.mark.parametrize("no_object", [False, True])
def test_the_loss_of_a_batch_is_the_sum_over_its_pictures_and_layers(no_object: bool) -> None:
    torch.manual_seed(1)
    logits, boxes = torch.randn(2, 3, 5, 3 + no_object), torch.rand(2, 3, 5, 4) * 0.4 + 0.2
    proposals = Detections(torch.randn(3, 40, 3), torch.rand(3, 40, 4) * 0.4 + 0.2)
    counts = (2, 1, 0)

    def parts(rows: slice, layers: list[int], targets: Targets, *, proposed: bool) -> dict[str, float]:
        found = [Detections(logits[layer, rows], boxes[layer, rows]) for layer in layers]
        output = DetectionOutput(torch.zeros(1), logits=found[-1].logits, boxes=found[-1].boxes, auxiliary=found[:-1])
        output.proposals = Detections(proposals.logits[rows], proposals.boxes[rows]) if proposed else None
        return {name: value.item() for name, value in detection_loss(output, targets, labels=3).items()}

    whole = parts(slice(None), [0, 1], joined(*(padded(TARGET, count) for count in counts)), proposed=True)
    total = dict.fromkeys(whole, 0.0)
    for layer, (row, count) in itertools.product(range(2), enumerate(counts)):
        only = padded(TARGET, count, most=max(1, count))
        for name, value in parts(slice(row, row + 1), [layer], only, proposed=layer == 0).items():
            total[name] += value
    assert whole == pytest.approx(total, rel=1e-5) and all(whole.values())


def test_the_score_of_a_box_is_how_well_it_fits() -> None:
    logits = torch.zeros(1, requires_grad=True)
    for _ in range(300):
        (gradient,) = torch.autograd.grad(varifocal(logits, torch.tensor([0.7])).sum(), logits)
        logits = (logits - 2 * gradient).detach().requires_grad_()
    assert logits.sigmoid().item() == pytest.approx(0.7, abs=0.01)
    assert box_terms(BOXES, BOXES)[1].abs().max() < 1e-5
