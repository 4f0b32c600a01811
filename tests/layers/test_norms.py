"""Norms: ours against torch's, the batch norm's padding and running statistics by hand, gradients in float64."""

import pytest
import torch
from torch import nn

from headway.layers.norms import BatchNorm, NormConfig, RMSNorm


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("eps", [1e-6, 1e-2])
def test_rms_norm_is_torchs(affine: bool, eps: float) -> None:
    ours, theirs = RMSNorm(12, eps=eps, elementwise_affine=affine), nn.RMSNorm(12, eps=eps, elementwise_affine=affine)
    if affine:
        with torch.no_grad():
            theirs.weight.copy_(ours.weight.normal_())
    x = torch.randn(3, 5, 12)
    torch.testing.assert_close(ours(x), theirs(x))
    torch.testing.assert_close(
        ours(x), x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * (ours.weight if affine else 1)
    )


def test_rms_norm_in_half_precision_is_summed_in_full() -> None:
    x = torch.randn(4, 512) * 300
    got = RMSNorm(512, eps=1e-6).half()(x.half())  # a float16 sum of squares would overflow
    assert got.dtype == torch.float16
    torch.testing.assert_close(got.float(), nn.RMSNorm(512, eps=1e-6)(x), atol=5e-3, rtol=5e-3)


def test_the_config_builds_what_it_says() -> None:
    layer = NormConfig("layer", eps=0.5).build(4)
    assert isinstance(layer, nn.LayerNorm) and layer.eps == 0.5 and layer.bias is not None
    no_shift = NormConfig("layer", bias=False).build(4)
    assert isinstance(no_shift, nn.LayerNorm) and no_shift.bias is None and no_shift.weight is not None
    rms, batch = NormConfig("rms", eps=0.25).build(4), NormConfig("batch", eps=0.125).build(4)
    assert isinstance(rms, RMSNorm) and rms.eps == 0.25
    assert isinstance(batch, BatchNorm) and batch.eps == 0.125
    assert not list(NormConfig("rms", affine=False).build(4).parameters())


def test_batch_norm_without_padding_is_torchs() -> None:
    """Train steps and evaluation, outputs, gradients and running statistics."""
    ours, theirs = BatchNorm(6), nn.BatchNorm1d(6)
    with torch.no_grad():
        theirs.weight.copy_(ours.weight.normal_())
        theirs.bias.copy_(ours.bias.normal_())
    for _ in range(3):
        x = torch.randn(4, 5, 6) * 2 + 1
        mine, reference = x.clone().requires_grad_(), x.clone().requires_grad_()
        got, expected = ours(mine), theirs(reference.flatten(0, 1)).unflatten(0, (4, 5))
        torch.testing.assert_close(got, expected)
        direction = torch.randn_like(got)
        (got * direction).sum().backward()
        (expected * direction).sum().backward()
        torch.testing.assert_close(mine.grad, reference.grad)
        torch.testing.assert_close(ours.running_mean, theirs.running_mean)
        torch.testing.assert_close(ours.running_var, theirs.running_var)
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x), theirs(x.flatten(0, 1)).unflatten(0, (4, 5)))


def test_batch_norm_does_not_see_padding() -> None:
    x, keep = torch.randn(2, 4, 3), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    wild = torch.where(keep[:, :, None].bool(), x, torch.full_like(x, 1e4))
    one, other = BatchNorm(3), BatchNorm(3)
    a, b = one(x, padding_mask=keep), other(wild, padding_mask=keep)
    torch.testing.assert_close(a[keep.bool()], b[keep.bool()])
    torch.testing.assert_close(one.running_mean, other.running_mean)
    torch.testing.assert_close(one.running_var, other.running_var)
    real = x[keep.bool()]
    torch.testing.assert_close(a[keep.bool()], (real - real.mean(0)) / (real.var(0, unbiased=False) + 1e-5).sqrt())
    torch.testing.assert_close(one.running_mean, 0.1 * real.mean(0))
    torch.testing.assert_close(one.running_var, 0.9 + 0.1 * real.var(0))
    assert not torch.allclose(BatchNorm(3)(wild)[keep.bool()], a[keep.bool()])  # without `keep` it would


def test_batch_norm_in_evaluation_treats_each_token_alone() -> None:
    layer = BatchNorm(3)
    layer(torch.randn(4, 5, 3) * 3 + 2)
    layer.eval()
    x, before = torch.randn(2, 4, 3), layer.running_mean.clone()
    torch.testing.assert_close(layer(x)[:1, :1], layer(x[:1, :1]))
    assert torch.equal(layer.running_mean, before)


@pytest.mark.parametrize("kind", ["rms", "batch"])
def test_gradcheck(kind: str) -> None:
    layer = NormConfig(kind).build(4).double()  # type: ignore[arg-type]
    x = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    keep = torch.tensor([[1, 1, 0], [1, 1, 1]])
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    parameters = tuple(layer.parameters())

    def f(y: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return layer(y, padding_mask=keep) if kind == "batch" else layer(y)

    assert torch.autograd.gradcheck(f, (x, *parameters))
