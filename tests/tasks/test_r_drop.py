"""The loss of R-drop and its gradient, in blocks of rows, against the same as a chain of torch's operations."""

import pytest
import torch
import torch.nn.functional as F

from headway.tasks import r_drop
from headway.tasks.task import IGNORE

ROWS, CLASSES = 37, 50


def plain(logits: torch.Tensor, wanted: torch.Tensor, *, weight: float, smoothing: float) -> torch.Tensor:
    logs = [half.float().log_softmax(-1) for half in logits.chunk(2)]
    counted = wanted != IGNORE
    total = torch.zeros(())
    for one, other in (logs, logs[::-1]):
        total = total + F.cross_entropy(one, wanted, ignore_index=IGNORE, label_smoothing=smoothing, reduction="sum")
        total = total + weight / 2 * F.kl_div(one, other, reduction="none", log_target=True).sum(-1)[counted].sum()
    return total / 2


@pytest.mark.parametrize("block", [1, 7 * CLASSES, 1 << 20])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("weight", "smoothing"), [(5.0, 0.1), (0.0, 0.0), (1.0, 0.0)])
def test_the_loss_and_its_gradient_are_those_of_the_formula(monkeypatch, block, dtype, weight, smoothing):
    monkeypatch.setattr(r_drop, "BLOCK", block)
    torch.manual_seed(0)
    logits = (3 * torch.randn(2 * ROWS, CLASSES)).to(dtype).requires_grad_()
    wanted = torch.randint(CLASSES, (ROWS,))
    wanted[::5] = IGNORE
    losses = [loss(logits, wanted, weight=weight, smoothing=smoothing) for loss in (r_drop.r_drop_loss, plain)]
    ours, exact = (torch.autograd.grad(loss / 3, logits)[0] for loss in losses)
    torch.testing.assert_close(*losses)
    torch.testing.assert_close(ours, exact, **({} if dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}))
    ignored = torch.cat([wanted == IGNORE] * 2)
    assert ours[ignored].abs().max() == 0 and ours[~ignored].abs().min() > 0


def test_rows_without_a_wanted_class_cost_nothing():
    logits = torch.randn(6, 4, requires_grad=True)
    loss = r_drop.r_drop_loss(logits, torch.full((3,), IGNORE), weight=5.0, smoothing=0.1)
    loss.backward()
    assert loss == 0 and logits.grad.abs().max() == 0
