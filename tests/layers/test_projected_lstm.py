"""The LSTM of ELMo against torch's own, and both directions of padded rows."""

import torch
from torch import Tensor, nn

from headway.layers.projected_lstm import BidirectionalStack, ProjectedLSTM, ProjectedLSTMConfig, run_layers

BATCH, LENGTH = 3, 7


def layers_of(config: ProjectedLSTMConfig) -> list[ProjectedLSTM]:
    generator = torch.Generator().manual_seed(1)
    found = [ProjectedLSTM(config).double() for _ in range(2)]
    for layer in found:
        layer.reset(generator)
    return found


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


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
