"""The auxiliary loss of the encoder of `transcribe`."""

import math
from itertools import product

import torch
from support.task_run import started

from headway.tasks.ctc import ctc_loss
from headway.tasks.task import IGNORE


def test_it_sums_over_all_alignments() -> None:
    torch.manual_seed(0)
    logits = torch.randn(1, 4, 3)  # tokens 0 and 1, and the blank
    probabilities = logits[0].softmax(-1)
    total = 0.0
    for path in product(range(3), repeat=4):
        merged = [token for at, token in enumerate(path) if at == 0 or token != path[at - 1]]
        if [token for token in merged if token != 2] == [0, 1]:
            total += math.prod(probabilities[at, token].item() for at, token in enumerate(path))
    targets = torch.tensor([[0, 1, IGNORE]])
    found = ctc_loss(logits, torch.tensor([7]), targets, stride=2, ignored=IGNORE)
    assert math.isclose(found.item(), -math.log(total), rel_tol=1e-5)


def test_padding_does_not_count_and_a_sound_may_be_too_short() -> None:
    torch.manual_seed(0)
    logits = torch.randn(2, 6, 4)
    targets = torch.tensor([[0, 1, 2, 2], [1, IGNORE, IGNORE, IGNORE]])
    whole = ctc_loss(logits, torch.tensor([6, 3]), targets, stride=1, ignored=IGNORE)
    alone = [
        ctc_loss(logits[:1], torch.tensor([6]), targets[:1], stride=1, ignored=IGNORE),
        ctc_loss(logits[1:, :3], torch.tensor([3]), targets[1:, :1], stride=1, ignored=IGNORE),
    ]
    torch.testing.assert_close(whole, sum(alone))
    short = ctc_loss(logits[:1, :3], torch.tensor([3]), targets[:1], stride=1, ignored=IGNORE)
    assert short == 0, "four tokens in three vectors"


def test_it_is_a_part_of_the_training_loss_alone() -> None:
    task, model, data = started("transcribe", rows=20)
    examples = [task.examples(row)[0] for row in list(data.train())[:3]]
    batch = task.collate(examples, seeds=[()] * 3, where=[])
    task.label_smoothing = 0.0
    model.eval()
    plain = task.loss(model, batch)
    for module in model.modules():
        module.training = module is model  # without dropout
    both = task.loss(model, batch)
    assert not plain.parts and both.parts["ctc"] > 0
    torch.testing.assert_close(both.total, plain.total + task.ctc * both.parts["ctc"])
    both.total.backward()
    assert model.encoder.head.project.weight.grad.abs().sum() > 0
    without, model, _ = started("transcribe", rows=20, ctc=0.0)
    assert model.encoder.head is None and not without.loss(model.train(), batch).parts
