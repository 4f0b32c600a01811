"""The LSTM of ELMo: all steps with a written-out gradient against the plain steps, and against torch's own."""

import pytest
import torch
from torch import Tensor, nn

from headway.layers import projected_lstm
from headway.layers.projected_lstm import BidirectionalStack, LSTMState, ProjectedLSTM, ProjectedLSTMConfig, run_layers

BATCH, LENGTH = 3, 7


class Wrapped(nn.Module):
    """A linear layer that is not plain, as one with an adapter."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def layers_of(config: ProjectedLSTMConfig) -> list[ProjectedLSTM]:
    generator = torch.Generator().manual_seed(1)
    found = [ProjectedLSTM(config).double() for _ in range(2)]
    for layer in found:
        layer.reset(generator)
    return found


def wrapped(layers: list[ProjectedLSTM]) -> list[ProjectedLSTM]:
    for layer in layers:
        layer.recurrent, layer.project = Wrapped(layer.recurrent), Wrapped(layer.project)
    return layers


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gradients(layers: list[ProjectedLSTM], config: ProjectedLSTMConfig) -> list[Tensor]:
    """Outputs, last states, and the gradient of both by every weight, input and first state."""
    inputs = [(3 * draw(BATCH, LENGTH, config.width, seed=seed)).requires_grad_() for seed in (2, 3)]
    sizes = (config.width, config.hidden)
    states = [LSTMState(*(draw(BATCH, size, seed=seed).requires_grad_() for size in sizes)) for seed in (4, 5)]
    done = run_layers(layers, inputs, lengths=torch.tensor([7, 4, 1]), states=states)
    found = [each for out, state in done for each in (out, *state)]
    weights = [each for layer in layers for each in layer.parameters()]
    total = sum((each * draw(*each.shape, seed=10 + number)).sum() for number, each in enumerate(found))
    assert isinstance(total, Tensor)
    return found + list(torch.autograd.grad(total, [*inputs, *(each for state in states for each in state), *weights]))


@pytest.mark.parametrize(("cell_clip", "projection_clip"), [(0.0, 0.0), (0.6, 0.2)])
def test_all_steps_equal_the_plain_steps_and_their_gradient(cell_clip: float, projection_clip: float) -> None:
    config = ProjectedLSTMConfig(6, 4, cell_clip=cell_clip, projection_clip=projection_clip)
    fast, plain = gradients(layers_of(config), config), gradients(wrapped(layers_of(config)), config)
    assert len(fast) == len(plain) > 14
    for ours, reference in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, reference, rtol=1e-10, atol=1e-12)
    if cell_clip:  # the clips are reached, so that their gradient is tested
        assert float(fast[0].detach().abs().max()) == projection_clip
        assert float(fast[2].detach().abs().max()) == cell_clip


def test_weights_that_are_not_plain_take_the_plain_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the fast path ran")

    monkeypatch.setattr(projected_lstm._AllSteps, "apply", refuse)
    config = ProjectedLSTMConfig(6, 4)
    run_layers(wrapped(layers_of(config)), [draw(BATCH, LENGTH, 4, seed=1)] * 2)
    with pytest.raises(AssertionError, match="fast path"):
        run_layers(layers_of(config), [draw(BATCH, LENGTH, 4, seed=1)] * 2)


def test_one_layer_equals_torch() -> None:
    config = ProjectedLSTMConfig(6, 4)
    ours = layers_of(config)[0]
    reference = nn.LSTM(4, 6, proj_size=4, batch_first=True).double()
    state = {"weight_ih_l0": ours.input.weight, "weight_hh_l0": ours.recurrent.weight, "bias_ih_l0": ours.input.bias}
    state |= {"bias_hh_l0": torch.zeros(24), "weight_hr_l0": ours.project.weight}
    reference.load_state_dict(state)
    x = draw(BATCH, LENGTH, 4, seed=1)
    out, (h, c) = reference(x)
    [(found, last)] = run_layers([ours], [x])
    for left, right in ((found, out), (last.output, h[0]), (last.cell, c[0])):
        torch.testing.assert_close(left, right)


def test_directions_of_a_padded_batch_equal_those_of_each_row() -> None:
    torch.manual_seed(0)
    stack = BidirectionalStack(ProjectedLSTMConfig(6, 4, cell_clip=1.0, projection_clip=1.0)).double()
    x = draw(2, LENGTH, 4, seed=1)
    mask = torch.arange(LENGTH) < torch.tensor([[7], [4]])
    layers, states = stack(x, padding_mask=mask)
    alone, last = stack(x[1:, :4])
    for ours, reference in zip(layers, alone, strict=True):
        torch.testing.assert_close(ours[1:, :4], reference)
    for ours, reference in zip(states, last, strict=True):
        torch.testing.assert_close(ours.cell[1:], reference.cell)
