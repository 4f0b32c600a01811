"""Who may look at whom: each mask against a plain double loop, their combination with & and |, and causality of the
attention built on them by perturbation and by gradient."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from headway.layers.attend import attend, attend_with_weights
from headway.layers.masks import CAUSAL, Mask, padding, permutation, prefix, segments, window
from headway.layers.positions import positions_of

CPU = torch.device("cpu")


def distances(queries: int, keys: int) -> Tensor:
    return positions_of(queries, device=CPU, past=[keys - queries]).distances()


def by_loop(queries: int, keys: int, allowed: Callable[[int, int], bool]) -> Tensor:
    """`allowed(i, j)`, with i counted so that the last query is the last key."""
    return torch.tensor([[allowed(i + keys - queries, j) for j in range(keys)] for i in range(queries)])


@pytest.mark.parametrize(("queries", "keys"), [(6, 6), (3, 6), (1, 6), (1, 1)])
def test_causal(queries: int, keys: int) -> None:
    got = CAUSAL.tensor(queries, keys, CPU)
    expected = by_loop(queries, keys, lambda i, j: j <= i)
    assert torch.equal(torch.ones_like(expected) if got is None else got, expected)


def test_a_single_query_needs_no_triangle() -> None:
    assert CAUSAL.tensor(1, 9, CPU) is None


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(("queries", "keys"), [(7, 7), (2, 7), (1, 7)])
def test_window(size: int, queries: int, keys: int) -> None:
    mask = CAUSAL & window(size, distances(queries, keys), causal=True)
    got = mask.tensor(queries, keys, CPU)
    assert got is not None
    assert torch.equal(got, by_loop(queries, keys, lambda i, j: i - size < j <= i))


def test_a_window_that_is_not_causal_is_as_wide_behind() -> None:
    got = window(2, distances(5, 5), causal=False).tensor(5, 5, CPU)
    assert got is not None and torch.equal(got, by_loop(5, 5, lambda i, j: abs(i - j) < 2))


def test_padding() -> None:
    mask = padding(torch.tensor([[1, 1, 0], [1, 1, 1]]))
    assert mask.allowed is not None and mask.allowed.shape == (2, 1, 1, 3)
    assert mask.allowed[:, 0, 0].tolist() == [[True, True, False], [True, True, True]]


def test_prefix() -> None:
    mask = prefix(torch.tensor([0, 3]), queries=4, keys=5)
    got = mask.tensor(4, 5, CPU)
    assert got is not None
    assert torch.equal(got[0, 0], by_loop(4, 5, lambda i, j: j <= i))
    assert torch.equal(got[1, 0], by_loop(4, 5, lambda i, j: j <= i or j < 3))


def test_permutation() -> None:
    """Row 0 predicts the tokens in the order 2, 0, 1: what is predicted later sees what came earlier, and itself if the
    stream holds the contents."""
    order = torch.tensor([[1, 2, 0], [0, 1, 2]])
    content, query = (permutation(order, include_self=own).tensor(3, 3, CPU) for own in (True, False))
    assert content is not None and query is not None
    for row in range(2):
        steps = order[row].tolist()
        assert torch.equal(content[row, 0], by_loop(3, 3, lambda i, j, s=steps: s[j] <= s[i]))
        assert torch.equal(query[row, 0], by_loop(3, 3, lambda i, j, s=steps: s[j] < s[i]))


def test_segments() -> None:
    ids = torch.tensor([[0, 0, 1, 1, 1], [3, 3, 3, 3, 3]])
    got = segments(ids).tensor(5, 5, CPU)
    assert got is not None
    for row in range(2):
        assert torch.equal(got[row, 0], by_loop(5, 5, lambda i, j, row=row: bool(ids[row, i] == ids[row, j])))


def test_and_or_follow_the_truth_table() -> None:
    a = Mask(torch.tensor([[True, True], [False, False]]))
    b = Mask(torch.tensor([[True, False], [True, False]]))
    both, either = (a & b).allowed, (a | b).allowed
    assert both is not None and either is not None
    assert both.tolist() == [[True, False], [False, False]]
    assert either.tolist() == [[True, True], [True, False]]
    assert (a & Mask()).allowed is a.allowed and (Mask() & a).allowed is a.allowed
    assert (a | Mask()) == Mask() and (Mask() | a) == Mask()


def test_and_keeps_the_triangle_and_or_refuses_to_lose_it() -> None:
    wide = Mask(torch.tensor([[True, True, False]]))
    for mask in (wide & CAUSAL, CAUSAL & wide):
        got = mask.tensor(3, 3, CPU)
        assert got is not None and got.tolist() == [[True, False, False], [True, True, False], [True, True, False]]
    with pytest.raises(ValueError, match="tensor"):
        wide | CAUSAL


@pytest.mark.parametrize("path", [attend, lambda *a, **kw: attend_with_weights(*a, **kw)[0]], ids=["fast", "explicit"])
@pytest.mark.parametrize("windowed", [False, True])
def test_causality_by_gradient_and_by_perturbation(path: Callable[..., Tensor], windowed: bool) -> None:
    """What query i says does not depend on the keys and values after it: exactly, not nearly."""
    length, size = 6, 3
    q, k, v = (torch.randn(1, 2, length, 4, requires_grad=True) for _ in range(3))
    mask = CAUSAL & window(size, distances(length, length), causal=True) if windowed else CAUSAL
    values = path(q, k, v, mask=mask)
    for i in range(length):
        for gradient in torch.autograd.grad(values[:, :, i].sum(), (k, v), retain_graph=True):
            felt = gradient.abs().sum((0, 1, 3)) != 0
            first = max(0, i - size + 1) if windowed else 0
            silent = torch.ones(length, dtype=torch.bool)
            silent[first : i + 1] = False
            assert not felt[silent].any()
    with torch.no_grad():
        for t in range(1, length):
            k2, v2 = k.clone(), v.clone()
            k2[:, :, t:], v2[:, :, t:] = 1e3 * torch.randn_like(k2[:, :, t:]), 1e3
            changed = path(q, k2, v2, mask=mask)
            assert torch.equal(changed[:, :, :t], values[:, :, :t])
            assert not torch.equal(changed[:, :, t:], values[:, :, t:])


@pytest.mark.parametrize("base", [Mask(), CAUSAL], ids=["everything", "causal"])
def test_packed_segments_do_not_see_each_other(base: Mask) -> None:
    """Texts packed in one row give what each gives alone, whether told token by token or by their lengths."""
    q = torch.randn(1, 4, 11, 4)
    k, v = (torch.randn(1, 2, 11, 4) for _ in range(2))  # heads share keys
    parts = slice(0, 3), slice(3, 7), slice(7, 11)
    alone = torch.cat([attend(*(x[:, :, part] for x in (q, k, v)), mask=base) for part in parts], dim=2)
    numbered = segments(torch.tensor([[0] * 3 + [1] * 4 + [2] * 4]))
    packed = Mask(sequence_lengths=(3, 4, 4))
    for mask in (base & numbered, base & packed, packed & base):
        torch.testing.assert_close(attend(q, k, v, mask=mask), alone)
        torch.testing.assert_close(attend_with_weights(q, k, v, mask=mask)[0], alone)
    bias = torch.randn(1, 4, 11, 11)
    by_lengths, by_number = (attend(q, k, v, mask=base & mask, bias=bias) for mask in (packed, numbered))
    torch.testing.assert_close(by_lengths, by_number)
    assert not torch.allclose(alone, attend(q, k, v, mask=base))


def test_or_refuses_to_lose_packed_sequences() -> None:
    with pytest.raises(ValueError, match="tensor"):
        Mask(sequence_lengths=(2, 3)) | Mask(torch.ones(5, 5, dtype=torch.bool))
