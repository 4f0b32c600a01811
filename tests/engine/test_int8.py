"""Int8 weights: bounds of the rounding error, and models that stay close to their float version."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from headway.engine import prepare
from headway.engine.bf16 import Bf16Linear
from headway.engine.int8 import (
    GROUP,
    PER_ROW,
    Int8Linear,
    Int8Table,
    Int8Weight,
    dequantise,
    group_size,
    quantise,
    quantise_weight,
)
from headway.errors import ConfigError
from headway.layers.linear import Linear
from headway.models import recipes
from headway.models.build import build, tensor_names
from headway.models.recipes import Size

SIZE = Size(width=48, layers=2, heads=3)


@pytest.mark.parametrize(("group", "size"), [(PER_ROW, 96), (16, 16), (GROUP, 48)])
def test_each_weight_is_off_by_at_most_half_a_step(group: int, size: int) -> None:
    weight = torch.randn(7, 96) * torch.logspace(-3, 2, 7)[:, None]
    weight[3] = 0
    codes, scale = quantise_weight(weight, group)
    assert codes.dtype == torch.int8 and scale.shape == (7, 96 // size)
    step = scale.repeat_interleave(size, dim=1)
    assert ((dequantise(codes, scale) - weight).abs() <= step / 2 * 1.001).all()
    assert (dequantise(codes, scale)[3] == 0).all()
    again = quantise_weight(dequantise(codes, scale), group)[0]
    assert torch.equal(again, codes)


@pytest.mark.parametrize(
    ("inputs", "group", "size"),
    [
        (768, GROUP, 64),
        (288, GROUP, 48),
        (480, 64, 48),
        (48, GROUP, 48),
        (77, GROUP, 77),
        (100, 32, 100),
        (768, PER_ROW, 768),
    ],
)
def test_the_group_size_is_the_nearest_divisor(inputs: int, group: int, size: int) -> None:
    assert group_size(inputs, group) == size
    assert group == PER_ROW or size == inputs or (inputs % size == 0 and size % 16 == 0)


def test_groups_are_the_default_and_unsupported_sizes_raise() -> None:
    assert Int8Linear(768, 2, bias=False).weight_scale.shape == (2, 12)
    assert prepare(decoder(), "int8").stack.blocks[0].attention.query.group == GROUP
    with pytest.raises(ConfigError, match="group 9 is no multiple of 16"):
        quantise_weight(torch.randn(2, 48), 9)


def decoder() -> nn.Module:
    model = build(recipes.decoder(SIZE, "modern", vocab=60, context=64)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.25) if parameter.ndim > 1 else parameter.uniform_(0.5, 1.5)
    return model


@pytest.mark.parametrize("weights", ["int8", "bf16"])
@torch.no_grad()
def test_a_converted_model_is_close_to_the_original(weights: str) -> None:
    model, ids = decoder(), torch.randint(60, (2, 9))
    before = model(ids).logits
    bytes_before = sum(tensor.nbytes for tensor in model.state_dict().values())
    assert prepare(model, weights) is model
    after = model(ids).logits
    assert 0 < (after - before).abs().max() < 0.05 * before.abs().max()
    kept = sum(tensor.nbytes for tensor in model.state_dict().values())
    assert kept < bytes_before * (0.35 if weights == "int8" else 0.55)
    kind = Int8Linear if weights == "int8" else Bf16Linear
    assert type(model.stack.blocks[0].attention.query) is kind


@pytest.mark.parametrize("weights", ["int8", "bf16"])
@torch.no_grad()
def test_compiled_and_plain_steps_agree_on_converted_weights(weights: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    model, ids = prepare(decoder(), weights), torch.randint(60, (2, 9))

    def logits() -> torch.Tensor:
        cache = model.new_cache(2)
        model.step(ids[:, :5], cache)
        return torch.stack([model.step(ids[:, i : i + 1], cache) for i in range(5, 9)])

    compiled = logits()
    monkeypatch.setattr("headway.engine.int8.can_compile", lambda: False)
    monkeypatch.setattr(model.step, "reason", "not now")
    torch.testing.assert_close(compiled, logits(), atol=5e-3, rtol=1e-3)


@torch.no_grad()
def test_a_tied_table_is_converted_once() -> None:
    config = recipes.encoder_decoder(SIZE, "modern", vocab=60, context=None, start_id=1)
    model = quantise(build(config).eval())
    assert isinstance(model.encoder.embedding.tokens, Int8Table)
    assert model.decoder.embedding.tokens is model.encoder.embedding.tokens
    on_meta = quantise(build(config, device="meta"))
    assert tensor_names(on_meta) == tensor_names(model)
    assert all(tensor.is_meta for tensor in on_meta.state_dict().values())


def test_torch_functions_use_the_dequantised_matrix() -> None:
    weight = Int8Weight(*quantise_weight(torch.randn(6, 32)))
    x = torch.randn(3, 32)
    torch.testing.assert_close(torch.matmul(x, torch.t(weight)), F.linear(x, weight.dense()))
    torch.testing.assert_close(F.linear(x, weight), F.linear(x, weight.dense()), atol=1e-3, rtol=1e-3)


def test_gradients_flow_to_the_input() -> None:
    """A low-rank adapter on an int8 layer needs them."""
    model, x = Int8Linear.of(decoder().stack.blocks[0].attention.query), torch.randn(2, 48, requires_grad=True)
    model(x).sum().backward()
    assert x.grad is not None and x.grad.abs().sum() > 0


@torch.no_grad()
def test_both_products_round_tokens_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether few tokens take the compiled product or many the dense one, a row's result is the same up to the order of
    the sum; without the rounding the difference is twenty times larger."""
    pytest.importorskip("numba")
    linear = Int8Linear.of(Linear(192, 64))
    x = torch.randn(300, 192) * torch.rand(300, 1) * 10
    many = linear(x)
    few = torch.cat([linear(part) for part in x.split(20)])
    error = (many - few).abs().mean()
    monkeypatch.setattr("headway.engine.int8.round_tokens", lambda x, groups: x)
    assert (linear(x) - few).abs().mean() > 20 * error
    zeros = torch.zeros(300, 192)
    assert torch.isfinite(linear(zeros)).all()
