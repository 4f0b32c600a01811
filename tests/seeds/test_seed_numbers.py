"""The numbers of the seed notes come out of our own code; and where the notes slip, what the papers say holds.
`docs/seeds.md` tells the story of each."""

import math

import pytest
import torch

from headway.layers.attend import attend, attend_with_weights, attention_weights
from headway.layers.attention import Attention, AttentionConfig
from headway.layers.context import Context
from headway.layers.masks import CAUSAL, Mask
from headway.layers.norms import BatchNorm

CHASING = torch.tensor([-2.0, 3.0, 2.5, -1.0, 1.5, -2.0])
CAT = torch.tensor([-1.8, 2.8, 3.0, 0.2, 2.5, -1.5])
MOUSE = torch.tensor([-1.5, -2.0, 2.8, -0.5, -2.0, 3.0])


def test_chasing_looks_at_the_cat() -> None:
    """Seed 002: 26.05 and -4.5, before scaling; with √d_k = √6 the cat gets nearly all the weight."""
    q, k = CHASING[None, None, None], torch.stack([CAT, MOUSE])[None, None]
    scores, _ = attention_weights(q, k, scale=1.0)
    torch.testing.assert_close(scores[0, 0, 0], torch.tensor([26.05, -4.5]))
    scaled, weights = attention_weights(q, k)
    torch.testing.assert_close(scaled[0, 0, 0], torch.tensor([26.05, -4.5]) / math.sqrt(6))
    assert weights[0, 0, 0, 0] > 0.9999


def test_action_gets_results_table() -> None:
    """Seed 001's table, every column, with d_k = 64 so that the "/8" of the table is √d_k."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(3, 64) for _ in range(3))  # Action, gets, results
    scaled, softmax = attention_weights(q[None, None], k[None, None])
    values, weights = attend_with_weights(q[None, None], k[None, None], v[None, None])
    for word in range(3):
        score = torch.stack([(q[word] * k[other]).sum() for other in range(3)])
        eighth = score / 8
        x = torch.exp(eighth) / torch.exp(eighth).sum()
        z = sum(x[other] * v[other] for other in range(3))
        torch.testing.assert_close(scaled[0, 0, word], eighth)
        torch.testing.assert_close(softmax[0, 0, word], x)
        torch.testing.assert_close(weights[0, 0, word], x)
        torch.testing.assert_close(values[0, 0, word], z)
    torch.testing.assert_close(attend(q[None, None], k[None, None], v[None, None]), values)


def test_the_formula_is_batched_and_returns_the_weights() -> None:
    """Seed 000: values *and* weights, for a batch, dividing by the √d_k that its listing leaves undefined."""
    q, k, v = (torch.randn(5, 1, 7, 16) for _ in range(3))
    values, weights = attend_with_weights(q, k, v)
    assert values.shape == (5, 1, 7, 16) and weights.shape == (5, 1, 7, 7)
    for row in range(5):
        expected = torch.softmax(q[row, 0] @ k[row, 0].T / math.sqrt(16), dim=-1)
        torch.testing.assert_close(weights[row, 0], expected)
        torch.testing.assert_close(values[row, 0], expected @ v[row, 0])


def test_soft_dictionary() -> None:
    """Seed 002's dictionary: similarities 4, 3 and -1 (already scaled) look up 70%, 26% and 4%… to two digits."""
    weights = torch.tensor([4.0, 3.0, -1.0]).softmax(0)
    assert [round(w, 2) for w in weights.tolist()] == [0.73, 0.27, 0.0]  # the note's 0.70/0.26/0.04 is rounded by hand


def test_slip_scaling_is_by_head_size_not_by_length() -> None:
    """Seed 001 divides by √n and corrects "/8" to "/3"; the paper divides by √d_k, so a longer
    text does not change a score."""
    q, k = torch.randn(1, 1, 1, 64), torch.randn(1, 1, 30, 64)
    short, _ = attention_weights(q, k[:, :, :3])
    long, _ = attention_weights(q, k)
    torch.testing.assert_close(short[..., :3], long[..., :3])
    torch.testing.assert_close(long, q @ k.transpose(-1, -2) / 8)


def test_slip_scaling_is_by_head_size_not_by_embedding_size() -> None:
    """One listing of seed 002 scales by the embedding's size; with 4 heads of 16 the scale is 1/4, not 1/8."""
    attention = Attention(64, AttentionConfig(heads=4, head_size=16))
    recorded: dict[str, torch.Tensor] = {}
    for name in ("q", "k", "scores"):
        tap = getattr(attention, name)
        tap.register_forward_hook(lambda _m, _i, out, name=name: recorded.__setitem__(name, out))
    attention(torch.randn(2, 5, 64), Context())
    torch.testing.assert_close(recorded["scores"], recorded["q"] @ recorded["k"].transpose(-1, -2) / 4)


def test_slip_a_mask_is_minus_infinity_before_the_softmax() -> None:
    """Seed 001 says that a mask zeroes neurons as dropout does. It does not: the remaining weights still sum to one,
    nothing is rescaled, and what is masked has no influence at all."""
    q, k, v = (torch.randn(1, 2, 6, 8) for _ in range(3))
    scores, weights = attention_weights(q, k, mask=CAUSAL)
    assert torch.isneginf(scores[0, 0].triu(1)[scores[0, 0].triu(1) != 0]).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 6))
    changed = v.clone()
    changed[:, :, 3:] += 100
    torch.testing.assert_close(
        attend(q, k, v, mask=CAUSAL)[:, :, :3], attend(q, k, changed, mask=CAUSAL)[:, :, :3], atol=0, rtol=0
    )


@pytest.mark.parametrize("length", [1, 3, 8])
def test_slip_the_causal_mask_is_cropped_to_the_length(length: int) -> None:
    """One listing of seed 002 masks with a full block_size square; ours fits any length."""
    allowed = Mask(causal=True).tensor(length, length, torch.device("cpu"))
    if length > 1:
        assert allowed is not None and torch.equal(allowed, torch.ones(length, length).tril().bool())


def test_slip_batch_norm_averages_per_feature() -> None:
    """Seed 002's listing averages over every axis at once; Ioffe & Szegedy average each feature over the batch."""
    x = torch.randn(4, 5, 3) * torch.tensor([1.0, 10.0, 100.0]) + torch.tensor([0.0, 5.0, -50.0])
    y = BatchNorm(3)(x).flatten(0, 1)
    torch.testing.assert_close(y.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(y.var(0, unbiased=False), torch.ones(3), atol=1e-4, rtol=0)


def test_slip_the_query_of_cross_attention_is_the_decoder_s() -> None:
    """Seed 002: the query of cross-attention is the decoder's, keys and values are the encoder's."""
    cross = Attention(16, AttentionConfig(heads=2, head_size=8), cross=True)
    target, source = torch.randn(1, 3, 16), torch.randn(1, 7, 16)
    recorded: dict[str, torch.Tensor] = {}
    cross.weights.register_forward_hook(lambda _m, _i, out: recorded.__setitem__("weights", out))
    assert cross(target, Context(memory=source)).shape == (1, 3, 16)  # one result per query of the decoder
    assert recorded["weights"].shape == (1, 2, 3, 7)  # each over the whole source


def test_slip_pixels() -> None:
    """Seed 001: 256 × 256 is 65,536 pixels, and so 4,294,967,296 pairs; in 16 × 16 patches, 256 tokens and 65,536."""
    assert 256 * 256 == 65_536 and (256 * 256) ** 2 == 4_294_967_296
    assert (256 // 16) ** 2 == 256 and 256**2 == 65_536


def test_slip_attention_work_is_quadratic() -> None:
    """Seed 003's "O(1)" counts sequential steps; the scores are n² numbers."""
    sizes = [attention_weights(torch.randn(1, 1, n, 4), torch.randn(1, 1, n, 4))[0].numel() for n in (8, 16, 32)]
    assert sizes == [64, 256, 1024]
