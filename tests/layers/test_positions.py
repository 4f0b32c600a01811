"""Where a token stands: every scheme against its paper's own formula, worked out here a second time and slowly."""

import math

import pytest
import torch
from torch import Tensor

from headway.layers.context import Context
from headway.layers.positions import (
    LearnedConfig,
    LearnedPositions,
    Positions,
    SinusoidalConfig,
    SinusoidalPositions,
    positions_of,
    sinusoids,
)
from headway.layers.rotary import Rotary, RotaryConfig, rotate
from headway.layers.score_bias import AlibiBias, RelativeBias, RelativeBiasConfig, RelativeKeyConfig, alibi_slopes

CPU = torch.device("cpu")


# ---------------------------------------------------------------------------------------- added to the embeddings


def test_sinusoids_by_hand() -> None:
    """Width 4: position 3 has sin 3, cos 3, sin 0.03, cos 0.03."""
    four = [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    torch.testing.assert_close(sinusoids(5, 4)[3], torch.tensor(four))
    halves = sinusoids(5, 4, layout="halves")[3]
    torch.testing.assert_close(halves, torch.tensor([four[0], four[2], four[1], four[3]]))
    assert sinusoids(5, 4)[0].tolist() == [0, 1, 0, 1]
    wide = sinusoids(60, 512)
    for position, pair in ((7, 0), (50, 100), (59, 255)):
        angle = position / 10000 ** (2 * pair / 512)
        assert wide[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert wide[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_the_two_layouts_hold_the_same_numbers() -> None:
    one, other = sinusoids(9, 12), sinusoids(9, 12, layout="halves")
    assert torch.equal(torch.cat([one[:, 0::2], one[:, 1::2]], dim=1), other)


def test_sinusoids_reach_any_position() -> None:
    layer = SinusoidalPositions(8, SinusoidalConfig())
    assert not layer.state_dict()
    for position in (3, 700, 5000):
        for bound in (position + 1, None):  # from the table, and computed
            got = layer(Positions(torch.tensor([[position]]), 1, 1, bound))
            torch.testing.assert_close(got[0, 0], sinusoids(position + 1, 8)[position])


def test_learned_positions_begin_at_their_offset() -> None:
    layer = LearnedPositions(6, LearnedConfig(10, offset=2))
    assert layer.table.weight.shape == (12, 6)
    assert torch.equal(layer(Positions(torch.tensor([[0, 9]]), 2, 2, 10))[0], layer.table.weight[[2, 11]])


# ---------------------------------------------------------------------------------------- rotary


def turned(x: Tensor, positions: Tensor, config: RotaryConfig | None = None) -> Tensor:
    rotary = Rotary(x.shape[-1], config or RotaryConfig())
    length = positions.shape[1]
    found = [
        rotary(Positions(positions, length, length, most), dtype=x.dtype) for most in (int(positions.max()) + 1, None)
    ]
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))  # from the table, and computed
    return rotate(x, *found[0])


def test_rotary_turns_each_pair_by_its_own_angle() -> None:
    """As a product of complex numbers: pair (i, i + half) at position p is multiplied by exp(i p θ^(-2i/size))."""
    x, positions = torch.randn(1, 2, 5, 8), torch.tensor([[0, 1, 2, 30, 400]])
    angle = positions[0][:, None] / 10000 ** (torch.arange(4) / 4)  # (length, half)
    expected = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angle), angle)
    got = turned(x, positions)
    torch.testing.assert_close(torch.complex(got[..., :4], got[..., 4:]), expected, atol=1e-4, rtol=1e-4)


def test_rotary_preserves_norms() -> None:
    x = torch.randn(2, 3, 7, 16)
    got = turned(x, torch.arange(7)[None])
    torch.testing.assert_close(got.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(got[:, :, 0], x[:, :, 0]) and not torch.allclose(got[:, :, 1:], x[:, :, 1:])


def test_rotary_scores_depend_only_on_the_distance() -> None:
    q, k = torch.randn(1, 1, 1, 16), torch.randn(1, 1, 1, 16)

    def score(query: int, key: int) -> float:
        return (turned(q, torch.tensor([[query]])) * turned(k, torch.tensor([[key]]))).sum().item()

    for shift in (1, 10, 200):
        assert score(5 + shift, 2 + shift) == pytest.approx(score(5, 2), abs=1e-3)
    assert abs(score(5, 2) - score(5, 3)) > 1e-2 and abs(score(5, 2) - score(2, 5)) > 1e-2


def test_a_share_of_the_head_turns_and_the_rest_stays() -> None:
    x = torch.randn(1, 1, 4, 16)
    got = turned(x, torch.arange(4)[None], RotaryConfig(share=0.5))
    assert torch.equal(got[..., 8:], x[..., 8:])
    torch.testing.assert_close(got[..., :8], turned(x[..., :8], torch.arange(4)[None]))


def test_gradcheck_of_rotate() -> None:
    x = torch.randn(1, 2, 3, 6, dtype=torch.float64, requires_grad=True)
    angle = torch.randn(1, 1, 3, 2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda y: rotate(y, angle.cos(), angle.sin()), (x,))


# ---------------------------------------------------------------------------------------- added to the scores


def test_alibi_slopes_of_eight_heads_are_the_powers_of_a_half() -> None:
    assert alibi_slopes(8).tolist() == [2.0**-i for i in range(1, 9)]


def test_alibi_slopes_of_other_counts() -> None:
    """The paper's rule: a power of two has the ratio 2^(-8/n); else the slopes of the next smaller power, then every
    other slope of the next larger one."""
    torch.testing.assert_close(alibi_slopes(16), torch.tensor([2 ** (-i / 2) for i in range(1, 17)]))
    twelve = [2.0**-i for i in range(1, 9)] + [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5]
    torch.testing.assert_close(alibi_slopes(12), torch.tensor(twelve))
    torch.testing.assert_close(alibi_slopes(3), torch.tensor([2**-4, 2**-8, 2**-2.0]))


def test_alibi_bias_is_minus_slope_times_distance() -> None:
    bias = AlibiBias(4)(positions_of(2, device=CPU, past=[3]))
    assert bias.shape == (1, 4, 2, 5)
    slopes = alibi_slopes(4)
    for head in range(4):
        for row, query in enumerate((3, 4)):
            for key in range(5):
                assert bias[0, head, row, key].item() == pytest.approx(-slopes[head].item() * abs(query - key))


def slow_bucket(distance: int, *, causal: bool, buckets: int, most: int) -> int:
    """One number at a time: T5's rule as its paper tells it."""
    base = 0
    if causal:
        distance = max(0, -distance)
    else:
        buckets //= 2
        base = buckets if distance > 0 else 0
        distance = abs(distance)
    exact = buckets // 2
    if distance < exact:
        return base + distance
    fraction = math.log(distance / exact) / math.log(most / exact)
    return base + min(buckets - 1, exact + math.floor(fraction * (buckets - exact) + 1e-9))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "most"), [(32, 128), (8, 10), (16, 50)])
def test_t5_buckets(causal: bool, buckets: int, most: int) -> None:
    layer = RelativeBias(2, RelativeBiasConfig(buckets, most), causal=causal)
    distances = torch.arange(-200, 201)
    got = layer.bucket(distances)
    expected = [slow_bucket(d, causal=causal, buckets=buckets, most=most) for d in distances.tolist()]
    assert got.tolist() == expected
    assert set(got.tolist()) >= set(range(buckets // 2))
    assert got.max() == buckets - 1 and got.min() == 0


def test_t5_bias_is_the_table_at_the_bucket_of_each_distance() -> None:
    layer = RelativeBias(3, RelativeBiasConfig(8, 10), causal=False)
    whole, last = layer(positions_of(6, device=CPU)), layer(positions_of(2, device=CPU, past=[4]))
    assert whole.shape == (1, 3, 6, 6)
    assert torch.equal(whole[:, :, -2:], last)
    assert torch.equal(whole[0, :, 1, 4], layer.table.weight[layer.bucket(torch.tensor(3))])
    assert torch.equal(whole[0, :, 0, 0], whole[0, :, 5, 5]) and not torch.equal(whole[0, :, 0, 1], whole[0, :, 1, 0])


@pytest.mark.parametrize("far", [4, 16])
def test_relative_buckets_stay_inside_the_table_however_near_the_last_begins(far: int) -> None:
    bias = RelativeBias(1, RelativeBiasConfig(buckets=32, max_distance=far), causal=True)
    found = bias.bucket(-torch.arange(600))
    assert int(found.min()) == 0 and int(found.max()) <= 31


@pytest.mark.parametrize("layer", [RelativeBias(3, RelativeBiasConfig(8, 10), causal=True), AlibiBias(3)])
def test_rows_with_pasts_of_their_own_have_biases_of_their_own(layer: torch.nn.Module) -> None:
    both = layer(positions_of(2, device=CPU, past=[4, 1]))
    assert both.shape == (2, 3, 2, 6)
    assert torch.equal(both[:1], layer(positions_of(2, device=CPU, past=[4])))
    assert torch.equal(both[1:, :, :, :3], layer(positions_of(2, device=CPU, past=[1])))


def test_relative_keys_score_each_distance_by_the_query() -> None:
    layer = RelativeKeyConfig(max_distance=2).build(2, 4, width=8)
    q, k = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    got = layer(q, k, Context(positions=positions_of(5, device=CPU)), None)
    for i in range(5):
        for j in range(5):
            relative = layer.table.weight[max(-2, min(2, j - i)) + 2]
            torch.testing.assert_close(got[0, :, i, j], q[0, :, i] @ relative / 2)


def test_positions_are_counted_over_real_tokens() -> None:
    left = torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]])
    assert positions_of(4, device=CPU, padding_mask=left).ids.tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    rows = positions_of(2, device=CPU, past=[3, 0])
    assert rows.ids.tolist() == [[3, 4], [0, 1]] and rows.keys == 5 and rows.max_position == 5
    assert rows.distances()[1, 0].tolist() == [[0, -1, -2, -3, -4], [1, 0, -1, -2, -3]]
