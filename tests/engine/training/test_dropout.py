"""Dropout by a byte for each number: the right share is zero, the expectation stays, every byte of a draw is used, and
the seed decides."""

import pytest
import torch

from headway.engine.training.dropout import Drop


@pytest.mark.parametrize("p", [0.05, 0.1, 0.5, 0.9])
def test_share_and_expectation(p: float) -> None:
    x = torch.ones(400_003)  # not a multiple of eight
    y = Drop.apply(x, p)
    share = (y == 0).float().mean().item()
    assert share == pytest.approx(round(p * 256) / 256, abs=0.004)
    assert y.mean().item() == pytest.approx(1.0, abs=0.02)
    assert len(y.unique()) == 2
    for lane in range(8):  # the eight numbers that one draw serves are alike
        assert (y[lane::8] == 0).float().mean().item() == pytest.approx(share, abs=0.01)


def test_neighbours_are_independent() -> None:
    kept = (Drop.apply(torch.ones(800_000), 0.5) > 0).float().view(-1, 8)
    correlation = torch.corrcoef(kept.T)
    assert (correlation - torch.eye(8)).abs().max() < 0.02


def test_the_seed_decides_and_gradients_follow_the_mask() -> None:
    x = torch.randn(3, 5, 7, requires_grad=True)
    torch.manual_seed(3)
    first = Drop.apply(x, 0.3)
    torch.manual_seed(3)
    assert torch.equal(first, Drop.apply(x, 0.3))
    first.sum().backward()
    assert torch.equal(x.grad == 0, first == 0)
