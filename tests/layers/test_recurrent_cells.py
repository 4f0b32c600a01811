"""Cells and layers against torch's own, with gradients; rows of different lengths; both directions."""

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from headway.layers.recurrent import STATES, Cell, Recurrent, RecurrentCell, cell_step, reset_cells

TORCH = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
CELLS = sorted(TORCH)
LENGTHS = [5, 2, 4]


def pair(cell: Cell, *, layers: int = 1, both: bool = False) -> tuple[Recurrent, nn.RNNBase]:
    torch.manual_seed(0)
    own = Recurrent(cell, 6, 4, layers=layers, both=both).double()
    reference = TORCH[cell](6, 4, num_layers=layers, bidirectional=both, batch_first=True).double()
    reference.load_state_dict(own.state_dict())  # the names are the same
    return own, reference


def as_state(found: object, cell: Cell) -> torch.Tensor:
    """Torch's last state, (layer, batch, hidden) once or twice, as (batch, layer, states · hidden)."""
    parts = found if cell == "lstm" else (found,)
    return torch.cat([part.transpose(0, 1) for part in parts], dim=-1)


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", CELLS)
def test_layers_equal_torchs_with_gradients(cell: Cell, layers: int) -> None:
    own, reference = pair(cell, layers=layers)
    x = torch.randn(3, 5, 6, dtype=torch.double)
    found, state = own(x)
    wanted, last = reference(x)
    torch.testing.assert_close(found, wanted, atol=1e-12, rtol=0)
    torch.testing.assert_close(state, as_state(last, cell), atol=1e-12, rtol=0)
    (found**2).sum().backward()
    (wanted**2).sum().backward()
    for name, parameter in own.named_parameters():
        torch.testing.assert_close(parameter.grad, reference.get_parameter(name).grad, atol=1e-10, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_the_equations_equal_the_fused_kernel_with_gradients(cell: Cell) -> None:
    own, _ = pair(cell)
    x = torch.randn(3, 5, 6, dtype=torch.double)
    gradients = []
    for fused in (True, False):
        own.zero_grad()
        if fused:
            outputs, state = own(x)
        else:
            state, steps = torch.zeros(3, STATES[cell] * 4, dtype=torch.double), []
            for token in x.unbind(1):
                inputs = nn.functional.linear(token, own.weight_ih_l0, own.bias_ih_l0)
                state = cell_step(cell, inputs, state, weight=own.weight_hh_l0, bias=own.bias_hh_l0)
                steps.append(state[:, :4])
            outputs = torch.stack(steps, dim=1)
        (outputs**2).sum().backward()
        gradients.append([outputs.detach(), *(parameter.grad.clone() for parameter in own.parameters())])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_a_row_ends_at_its_length(cell: Cell) -> None:
    own, reference = pair(cell, layers=2)
    x = torch.randn(3, 5, 6, dtype=torch.double)
    found, state = own(x, lengths=LENGTHS)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    wanted, last = reference(packed)
    wanted = pad_packed_sequence(wanted, batch_first=True)[0]
    torch.testing.assert_close(state, as_state(last, cell), atol=1e-12, rtol=0)
    for row, length in enumerate(LENGTHS):
        torch.testing.assert_close(found[row, :length], wanted[row, :length], atol=1e-12, rtol=0)
    # going on from a state is reading on
    both, _ = own(torch.cat([x[:1], x[1:2]], dim=1))
    _, first = own(x[:1])
    then, _ = own(x[1:2], state=first)
    torch.testing.assert_close(both[:, 5:], then, atol=1e-12, rtol=0)


@pytest.mark.parametrize("cell", CELLS)
def test_both_directions_leave_padding_out(cell: Cell) -> None:
    own, reference = pair(cell, layers=2, both=True)
    x = torch.randn(3, 5, 6, dtype=torch.double)
    mask = torch.arange(5)[None] < torch.tensor(LENGTHS)[:, None]
    found, last = own(x, padding_mask=mask)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    wanted, ends = reference(packed)
    torch.testing.assert_close(found, pad_packed_sequence(wanted, batch_first=True)[0], atol=1e-12, rtol=0)
    h = ends[0] if cell == "lstm" else ends
    torch.testing.assert_close(last[:, -1], h[-1], atol=1e-12, rtol=0)  # of the backward direction


def test_first_values_follow_the_seed_alone() -> None:
    layer, other = Recurrent("lstm", 3, 4), RecurrentCell("lstm", 3, 4)
    for module in (layer, other):
        torch.manual_seed(int(module is layer))
        reset_cells(module, "lstm", 4, generator=torch.Generator().manual_seed(7))
    assert torch.equal(layer.weight_ih_l0, other.weight_ih)
    assert layer.bias_ih_l0[4:8].eq(1).all() and layer.bias_ih_l0[:4].eq(0).all()
