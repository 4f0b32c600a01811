"""The compiled matrix product equals that with the dequantised matrix, for all remainders of vectors and tiles."""

import pytest
import torch
import torch.nn.functional as F

from headway.engine.int8 import GROUP, PER_ROW, dequantise, quantise_weight

pytest.importorskip("numba")

from headway.engine.matmul import matmul


@pytest.mark.parametrize("inputs", [5, 16, 77, 96, 768, 4096])
@pytest.mark.parametrize("stored", ["fp32", "bf16", "int8", "int8 in groups"])
@torch.no_grad()
def test_matmul_equals_the_dequantised_product(stored: str, inputs: int) -> None:
    """For every remainder of tokens, and sizes that are no multiple of a vector."""
    group = GROUP if stored == "int8 in groups" else PER_ROW
    weight = torch.randn(37, inputs)
    codes, scale = quantise_weight(weight, group) if "int8" in stored else (weight, None)
    if stored == "bf16":
        codes = weight.bfloat16()
    exact = (dequantise(codes, scale) if scale is not None else codes).double()
    for tokens in (1, 2, 3, 4, 5, 6, 7, 8, 33):
        x = torch.randn(tokens, inputs)
        x[0] *= 1e3  # tokens are scaled separately
        expected = F.linear(x.double(), exact)
        error = (matmul(x, codes, scale) - expected).abs() / expected.abs().amax(1, keepdim=True)
        assert error.max() < (1e-3 if "int8" in stored else 1e-5), (tokens, error.max())


@torch.no_grad()
def test_the_largest_sums_do_not_overflow() -> None:
    weight, x = torch.ones(16, 16384), torch.ones(5, 16384)
    codes, scale = quantise_weight(weight, PER_ROW)
    torch.testing.assert_close(matmul(x, codes, scale), torch.full((5, 16), 16384.0), rtol=1e-3, atol=0)
    torch.testing.assert_close(matmul(-x, codes, scale), torch.full((5, 16), -16384.0), rtol=1e-3, atol=0)


@torch.no_grad()
def test_a_token_of_zeros_gives_zeros() -> None:
    assert (matmul(torch.zeros(1, 32), *quantise_weight(torch.randn(8, 32))) == 0).all()
