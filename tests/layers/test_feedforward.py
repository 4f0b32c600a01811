"""The feed-forward network: exact activations, gates, gradients."""

import math

import pytest
import torch
import torch.nn.functional as F

from headway.layers.feedforward import ACTIVATIONS, FeedForward, FeedForwardConfig


def test_squared_relu_and_its_gradient() -> None:
    x = torch.tensor([-2.0, 0.0, 0.5, 3.0])
    torch.testing.assert_close(ACTIVATIONS["relu2"](x), torch.tensor([0.0, 0.0, 0.25, 9.0]))
    y = torch.randn(4, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(ACTIVATIONS["relu2"], (y,))


def test_the_two_gelus_are_different_functions() -> None:
    x = torch.linspace(-3, 3, 50)
    exact = torch.tensor([v / 2 * (1 + math.erf(v / math.sqrt(2))) for v in x.tolist()])
    torch.testing.assert_close(ACTIVATIONS["gelu"](x), exact, atol=1e-6, rtol=1e-5)
    assert (ACTIVATIONS["gelu"](x) - ACTIVATIONS["gelu_tanh"](x)).abs().max() > 1e-5


@pytest.mark.parametrize("activation", ["silu", "gelu", "relu2"])
def test_gated(activation: str) -> None:
    layer = FeedForward(6, FeedForwardConfig(10, activation=activation, gated=True, bias=False))  # type: ignore[arg-type]
    x = torch.randn(2, 3, 6)
    assert layer.gate is not None
    expected = F.linear(ACTIVATIONS[activation](layer.gate(x)) * layer.up(x), layer.down.weight)
    torch.testing.assert_close(layer(x), expected)
