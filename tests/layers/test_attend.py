"""One formula, two ways: the fast kernel and the explicit path give the same numbers, the same gradients, the same
dropout statistics; heads that share keys are repeated heads; masked means zero."""

import math

import pytest
import torch
from torch import Tensor

from headway.layers.attend import attend, attend_with_weights, attention_weights, repeat_groups, softmax
from headway.layers.masks import CAUSAL, Mask, padding

BATCH, HEADS, QUERIES, KEYS, SIZE = 2, 4, 5, 7, 8
LEFT_PADDED = padding(torch.tensor([[0, 0, 1, 1, 1, 1, 1], [1] * 7]))
MASKS = {
    "everything": Mask(),
    "padding": padding(torch.tensor([[1, 1, 1, 1, 0, 0, 0], [1] * 7])),
    "causal": CAUSAL,
    "causal and padded": LEFT_PADDED & CAUSAL,
}


def qkv(*, kv_heads: int = HEADS, queries: int = QUERIES, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    shapes = [(HEADS, queries), (kv_heads, KEYS), (kv_heads, KEYS)]
    return [torch.randn(BATCH, heads, length, SIZE, dtype=dtype, requires_grad=True) for heads, length in shapes]


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("queries", [QUERIES, KEYS, 1])
def test_the_fast_path_is_the_explicit_path(mask: str, kv_heads: int, queries: int, biased: bool) -> None:
    tensors = qkv(kv_heads=kv_heads, queries=queries)
    bias = torch.randn(1, HEADS, queries, KEYS, requires_grad=True) if biased else None
    leaves = tensors + ([bias] if bias is not None else [])
    fast = attend(*tensors, mask=MASKS[mask], bias=bias, scale=0.3)
    explicit, weights = attend_with_weights(*tensors, mask=MASKS[mask], bias=bias, scale=0.3)
    torch.testing.assert_close(fast, explicit, atol=1e-5, rtol=1e-5)
    assert weights.shape == (BATCH, HEADS, queries, KEYS)
    direction = torch.randn_like(fast)
    for got, expected in zip(
        torch.autograd.grad((fast * direction).sum(), leaves),
        torch.autograd.grad((explicit * direction).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)


def test_the_formula_by_hand() -> None:
    q, k, v = qkv()
    values, weights = attend_with_weights(q, k, v)
    by_hand = torch.zeros_like(values)
    for b in range(BATCH):
        for h in range(HEADS):
            for i in range(QUERIES):
                powers = torch.stack([((q[b, h, i] * k[b, h, j]).sum() / math.sqrt(SIZE)).exp() for j in range(KEYS)])
                torch.testing.assert_close(weights[b, h, i], powers / powers.sum())
                by_hand[b, h, i] = (powers / powers.sum()) @ v[b, h]
    torch.testing.assert_close(values, by_hand)


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_grouped_heads_are_repeated_heads(kv_heads: int) -> None:
    q, k, v = qkv(kv_heads=kv_heads)
    whole = [repeat_groups(x, HEADS) for x in (k, v)]
    assert torch.equal(whole[0][:, 0], k[:, 0]) and torch.equal(whole[0][:, -1], k[:, -1])
    assert torch.equal(whole[0][:, HEADS // kv_heads - 1], k[:, 0])  # neighbours share
    torch.testing.assert_close(attend(q, k, v), attend(q, *whole))
    torch.testing.assert_close(attend_with_weights(q, k, v)[0], attend(q, *whole))


@pytest.mark.parametrize("biased", [False, True], ids=["plain", "biased"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_query_that_may_look_at_nothing_gives_zero_and_finite_gradients(biased: bool, dropout: float) -> None:
    q, k, v = qkv(queries=KEYS)
    bias = torch.randn(1, HEADS, KEYS, KEYS, requires_grad=True) if biased else None
    mask = LEFT_PADDED & CAUSAL  # row 0 starts with two queries that see only padding
    for path in (attend, lambda *a, **kw: attend_with_weights(*a, **kw)[0]):
        values = path(q, k, v, mask=mask, bias=bias, dropout=dropout)
        assert torch.equal(values[0, :, :2], torch.zeros(HEADS, 2, SIZE))
        assert values[0, :, 2:].abs().max() > 0
        for gradient in torch.autograd.grad(values.sum(), [q, k, v] + ([bias] if bias is not None else [])):
            assert torch.isfinite(gradient).all()


def test_masked_keys_get_exactly_no_weight_and_the_others_sum_to_one() -> None:
    q, k, _ = qkv(queries=KEYS)
    mask = LEFT_PADDED & CAUSAL
    allowed = mask.tensor(KEYS, KEYS, q.device).expand(BATCH, HEADS, KEYS, KEYS)
    scores, weights = attention_weights(q, k, mask=mask)
    assert (weights[~allowed] == 0).all() and (scores[~allowed] == -math.inf).all()
    expected = allowed.any(-1).float()
    torch.testing.assert_close(weights.sum(-1), expected)
    torch.testing.assert_close(softmax(scores), weights)


@pytest.mark.parametrize("kv_heads", [4, 1])
def test_gradcheck_of_both_paths(kv_heads: int) -> None:
    q, k, v = (x[:, :, :3].detach().requires_grad_() for x in qkv(kv_heads=kv_heads, dtype=torch.float64))
    bias = torch.randn(1, HEADS, 3, 3, dtype=torch.float64, requires_grad=True)
    mask = Mask(torch.tensor([[True, False, True], [True, True, True], [False, False, False]]))
    assert torch.autograd.gradcheck(lambda *x: attend(*x[:3], mask=mask, bias=x[3]), (q, k, v, bias))
    assert torch.autograd.gradcheck(lambda *x: attend_with_weights(*x[:3], mask=mask, bias=x[3])[0], (q, k, v, bias))


@pytest.mark.parametrize("path", ["fast", "explicit"])
def test_dropout_keeps_the_expectation(path: str) -> None:
    """4000 draws, dropout 0.4: the mean is the undropped value within five standard errors, the spread is the
    formula's √(p/(1-p) Σ (w v)²), and about 40 % of what one key brings is gone."""
    with torch.no_grad():
        q, k, v = (x[:1, :1] for x in qkv())
        many = [x.expand(4000, 1, -1, -1) for x in (q, k, v)]
        if path == "fast":
            drawn = attend(*many, dropout=0.4)
        else:
            drawn = attend_with_weights(*many, dropout=0.4)[0]
        expected, weights = attend_with_weights(q, k, v)
        spread = (0.4 / 0.6 * (weights.square() @ v.square())).sqrt()  # (1, 1, query, size)
        assert ((drawn.mean(0) - expected[0]).abs() < 5 * spread[0] / math.sqrt(4000)).all()
        torch.testing.assert_close(drawn.std(0), spread[0], rtol=0.1, atol=1e-3)
        one_key = [q.expand(4000, 1, -1, -1), many[1][:, :, :1], many[2][:, :, :1]]
        dropped = attend(*one_key, dropout=0.4) if path == "fast" else attend_with_weights(*one_key, dropout=0.4)[0]
        assert abs((dropped == 0).all(-1).float().mean().item() - 0.4) < 0.02


def test_weights_are_returned_before_dropout() -> None:
    q, k, v = qkv()
    _, weights = attend_with_weights(q, k, v, dropout=0.5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(BATCH, HEADS, QUERIES))


def test_half_precision_agrees_with_full() -> None:
    q, k, v = (x.detach() for x in qkv())
    low = attend(*(x.bfloat16() for x in (q, k, v)), bias=torch.zeros(1, HEADS, QUERIES, KEYS))
    assert low.dtype == torch.bfloat16
    torch.testing.assert_close(low.float(), attend(q, k, v), atol=0.03, rtol=0.03)
