"""Products of linear layers in bf16 on a CPU: sums in float32, rounded factors, forward and backward."""

from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.engine.training.precision import BLOCK, autocast, bf16_matmul
from headway.layers.linear import Linear, linear
from headway.models.build import build
from headway.models.recipes import Size, encoder
from headway.training.activation_checkpointing import checkpoint_blocks

CPU = torch.device("cpu")


def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


@pytest.fixture(autouse=True)
def restored():
    yield
    assert torch.get_float32_matmul_precision() == "highest"


def example(seed: int = 0) -> tuple[torch.Tensor, Linear]:
    torch.manual_seed(seed)
    return torch.randn(4, 128, 256, requires_grad=True), Linear(256, 320)


def results(x: torch.Tensor, layer: Linear, *, precision: str) -> list[torch.Tensor]:
    with autocast(precision, CPU):
        out = layer(x)
    return [out, *torch.autograd.grad(out.square().sum(), [x, layer.weight, layer.bias])]


def test_factors_are_rounded_at_most_and_the_rest_is_float32():
    x, layer = example()
    exact, ours = results(x, layer, precision="fp32"), results(x, layer, precision="bf16")
    for precise, found in zip(exact, ours, strict=True):
        assert found.dtype == torch.float32 and found.shape == precise.shape
        assert (found - precise).norm() < 0.01 * precise.norm()
    rounds = (ours[0] - exact[0]).norm() > 1e-4 * exact[0].norm()  # with AMX, or another CPU's instructions
    convert = rounded if rounds else torch.Tensor.float
    factors = [convert(x), convert(layer.weight)]
    torch.testing.assert_close(ours[0], F.linear(*factors, layer.bias), rtol=1e-5, atol=1e-5)
    g = convert(2 * ours[0]).flatten(0, 1)  # (row, output)
    torch.testing.assert_close(ours[1].flatten(0, 1), g @ factors[1], rtol=1e-4, atol=1e-3)
    torch.testing.assert_close(ours[2], g.T @ factors[0].flatten(0, 1), rtol=1e-4, atol=1e-2)
    torch.testing.assert_close(ours[3], 2 * ours[0].flatten(0, 1).sum(0), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("rows", [0, 1, BLOCK - 1, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("biased", [True, False])
def test_whole_blocks_of_rows_and_those_that_remain_make_one_product(rows, biased):
    torch.manual_seed(rows)
    x, weight = torch.randn(rows, 48, requires_grad=True), torch.randn(32, 48, requires_grad=True)
    bias = torch.randn(32, requires_grad=True) if biased else None
    given = [x, weight] if bias is None else [x, weight, bias]
    wanted = F.linear(x, weight, bias)
    with bf16_matmul():
        found = linear(x, weight, bias)
    part = torch.randn_like(wanted)
    exact, ours = (torch.autograd.grad(out, given, part) for out in (wanted, found))
    for precise, close in zip((wanted, *exact), (found, *ours), strict=True):
        assert close.shape == precise.shape and (close - precise).norm() <= 0.01 * precise.norm()


def test_no_gradient_is_computed_that_nothing_needs():
    x, layer = example()
    layer.weight.requires_grad_(False)
    with bf16_matmul():
        out = layer(x.detach().requires_grad_())
    out.sum().backward()
    assert layer.weight.grad is None and layer.bias.grad is not None
    with bf16_matmul():
        assert not linear(x.detach(), layer.weight.detach()).requires_grad


def test_other_types_are_computed_as_they_are():
    x, layer = example()
    with bf16_matmul():
        assert torch.equal(linear(x.double(), layer.weight.double()), F.linear(x.double(), layer.weight.double()))


def test_the_context_ends_with_an_error():
    x, layer = example()
    exact = layer(x)
    with pytest.raises(ValueError), bf16_matmul():
        raise ValueError
    assert torch.equal(layer(x), exact)


def test_hooks_see_the_values_that_are_computed():
    x, layer = example()
    seen = []
    layer.register_forward_hook(lambda module, inputs, output: seen.append(output))
    with bf16_matmul():
        out = nn.Sequential(layer)(x)
    assert seen[0] is out


def test_checkpointed_blocks_are_recomputed_in_the_precision_of_the_pass():
    def gradients(context) -> list[torch.Tensor]:
        torch.manual_seed(1)
        model = build(encoder(Size(width=32, layers=2, heads=2, dropout=0.1), "modern", vocab=20)).train()
        with context(model):
            with autocast("bf16", CPU):
                hidden = model(torch.arange(16).expand(8, -1)).hidden
            return list(torch.autograd.grad(hidden.square().mean(), list(model.stack.parameters())))

    kept, recomputed = gradients(nullcontext), gradients(checkpoint_blocks)
    assert all(torch.equal(first, second) for first, second in zip(kept, recomputed, strict=True))
