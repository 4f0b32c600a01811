"""The residual and the block: where the norm stands, what dropout touches, and that the whole is causal, equivariant
and has the gradients of its formula."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from headway.layers.attention import AttentionConfig
from headway.layers.block import Block, BlockConfig, Residual
from headway.layers.cache import LayerCache
from headway.layers.context import Context
from headway.layers.embedded import Embedded
from headway.layers.feedforward import ACTIVATIONS, FeedForward, FeedForwardConfig
from headway.layers.masks import CAUSAL, Mask, padding
from headway.layers.norms import NormConfig
from headway.layers.positions import positions_of
from headway.models.config import StackConfig
from headway.models.stack import Stack

WIDTH, LENGTH = 8, 5


def make(*, cross: bool = False, activation: str = "relu", gated: bool = False, **config: object) -> Block:
    attention = AttentionConfig(2, 4)
    settings = {
        "attention": attention,
        "cross": attention if cross else None,
        "feedforward": FeedForwardConfig(12, activation=activation, gated=gated),  # type: ignore[arg-type]
        **config,
    }
    block = Block(BlockConfig(WIDTH, **settings)).eval()  # type: ignore[arg-type]
    with torch.no_grad():
        for parameter in block.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return block


def test_post_norm_is_the_formula_of_2017() -> None:
    block, x, memory = make(cross=True, norm_place="post"), torch.randn(2, LENGTH, WIDTH), torch.randn(2, 3, WIDTH)
    norms = [r.norm for r in (block.attention_residual, block.cross_residual, block.feedforward_residual)]
    y = norms[0](x + block.attention(x, Context(mask=CAUSAL)))
    y = norms[1](y + block.cross(y, Context(memory=memory)))
    y = norms[2](y + block.feedforward(y))
    torch.testing.assert_close(block(x, Context(mask=CAUSAL, memory=memory)), y)


def test_pre_norm_leaves_the_stream_alone() -> None:
    block, x, memory = make(cross=True, norm_place="pre"), torch.randn(2, LENGTH, WIDTH), torch.randn(2, 3, WIDTH)
    norms = [r.norm for r in (block.attention_residual, block.cross_residual, block.feedforward_residual)]
    y = x + block.attention(norms[0](x), Context(mask=CAUSAL))
    y = y + block.cross(norms[1](y), Context(memory=memory))
    y = y + block.feedforward(norms[2](y))
    torch.testing.assert_close(block(x, Context(mask=CAUSAL, memory=memory)), y)


@pytest.mark.parametrize("place", ["pre", "post"])
def test_dropout_is_on_the_branch_before_it_is_added(place: str) -> None:
    config = BlockConfig(
        WIDTH,
        AttentionConfig(2, 4),
        FeedForwardConfig(4),
        norm=NormConfig(affine=False),
        norm_place=place,
        dropout=0.25,
    )
    residual = Residual(config).train()
    heard: list[Tensor] = []
    residual.branch.register_forward_hook(lambda _m, _i, value: heard.append(value))
    x = torch.randn(500, LENGTH, WIDTH)
    got = residual(x, torch.ones_like(x))
    kept = heard[0] != 0
    assert abs(kept.float().mean().item() - 0.75) < 0.02
    torch.testing.assert_close(heard[0][kept], torch.full_like(heard[0][kept], 4 / 3))
    summed = x + heard[0]
    torch.testing.assert_close(got, nn.functional.layer_norm(summed, (WIDTH,)) if place == "post" else summed)
    residual.eval()
    residual(x, torch.ones_like(x))
    assert (heard[1] == 1).all()


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_block_is_causal_exactly(place: str, norm: str) -> None:
    block = make(norm_place=place, norm=NormConfig(norm))  # type: ignore[arg-type]
    x = torch.randn(1, LENGTH, WIDTH, requires_grad=True)
    y = block(x, Context(mask=CAUSAL))
    for t in range(LENGTH):
        (gradient,) = torch.autograd.grad(y[:, t].sum(), x, retain_graph=True)
        assert (gradient[:, t + 1 :] == 0).all()
        changed = x.detach().clone()
        changed[:, t + 1 :] += 100
        assert torch.equal(block(changed, Context(mask=CAUSAL))[:, : t + 1], y[:, : t + 1])


def test_a_block_without_positions_is_permutation_equivariant_unless_causal() -> None:
    block, x, order = make(gated=True), torch.randn(2, LENGTH, WIDTH), torch.tensor([4, 1, 0, 3, 2])
    torch.testing.assert_close(block(x[:, order], Context()), block(x, Context())[:, order])
    assert not torch.allclose(
        block(x[:, order], Context(mask=CAUSAL)), block(x, Context(mask=CAUSAL))[:, order], atol=1e-3
    )


def test_a_batch_norm_leaves_padding_out() -> None:
    block = make(norm=NormConfig("batch"), norm_place="post").train()
    keep = torch.tensor([[1, 1, 1, 0, 0], [1] * 5])
    x = torch.randn(2, LENGTH, WIDTH)
    wild = torch.where(keep[:, :, None].bool(), x, torch.full_like(x, 50.0))
    one, other = (block(value, Context(mask=padding(keep), padding_mask=keep)) for value in (x, wild))
    torch.testing.assert_close(one[keep.bool()], other[keep.bool()])


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize(("activation", "gated"), [("gelu_tanh", True), ("relu2", False), ("quick_gelu", False)])
def test_gradcheck_of_a_block(place: str, activation: str, gated: bool) -> None:
    block = make(cross=True, activation=activation, gated=gated, norm_place=place, norm=NormConfig("rms")).double()
    x = torch.randn(1, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(1, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = Mask(torch.tensor([[True, True, False]] * 3), causal=True)
    assert torch.autograd.gradcheck(lambda y, m: block(y, Context(mask=mask, memory=m)), (x, memory))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    """Each against its definition, and its gradient against differences."""
    x = torch.linspace(-3, 3, 12, dtype=torch.float64, requires_grad=True)
    by_hand = {
        "relu": x.clamp(min=0),
        "relu2": x.clamp(min=0) ** 2,
        "gelu": x * 0.5 * (1 + torch.erf(x / 2**0.5)),
        "gelu_tanh": 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
        "quick_gelu": x / (1 + torch.exp(-1.702 * x)),
        "silu": x / (1 + torch.exp(-x)),
        "tanh": (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
    }
    torch.testing.assert_close(ACTIVATIONS[name](x), by_hand[name])
    assert torch.autograd.gradcheck(ACTIVATIONS[name], (x,))


def test_feedforward_plain_and_gated() -> None:
    x = torch.randn(2, 3, WIDTH)
    plain = FeedForward(WIDTH, FeedForwardConfig(12, activation="relu"))
    torch.testing.assert_close(plain(x), plain.down(torch.relu(plain.up(x))))
    gated = FeedForward(WIDTH, FeedForwardConfig(12, activation="silu", gated=True, bias=False))
    torch.testing.assert_close(gated(x), gated.down(nn.functional.silu(gated.gate(x)) * gated.up(x)))
    assert gated.gate.bias is gated.up.bias is gated.down.bias is None


def test_modulation_conditions_each_branch_and_starts_as_the_identity() -> None:
    block = Block(BlockConfig(WIDTH, AttentionConfig(2, 4), FeedForwardConfig(12), condition=3)).eval()
    x, condition = torch.randn(2, LENGTH, WIDTH), torch.randn(2, 3)
    assert torch.equal(block(x, Context(condition=condition)), x)
    with torch.no_grad():
        for parameter in block.modulation.parameters():
            parameter.normal_()
    (shift, scale, gate), (shift2, scale2, gate2) = block.modulation(condition)
    assert shift.shape == (2, 1, WIDTH)
    norms = [block.attention_residual.norm, block.feedforward_residual.norm]
    y = x + gate * block.attention(norms[0](x) * (1 + scale) + shift, Context())
    y = y + gate2 * block.feedforward(norms[1](y) * (1 + scale2) + shift2)
    torch.testing.assert_close(block(x, Context(condition=condition)), y)
    assert not torch.allclose(block(x, Context(condition=condition.flip(0))), y, atol=1e-3)
    assert make().modulation is None


def test_hooks_see_values_that_nobody_overwrites() -> None:
    """Every module's output is what it was when the hook got it, after the whole pass."""
    for training in (False, True):
        block, x = make(cross=True, norm_place="pre").train(training), torch.randn(2, LENGTH, WIDTH)
        seen: list[tuple[str, Tensor, Tensor]] = []
        for name, module in block.named_modules():
            module.register_forward_hook(
                lambda _m, _i, out, name=name, seen=seen: seen.append((name, out, out.detach().clone()))
            )
        with torch.no_grad():
            block(x, Context(mask=CAUSAL, memory=torch.randn(2, 3, WIDTH)))
        assert {"attention.output", "feedforward.up", "feedforward.down", "attention_residual"} <= {
            n for n, _, _ in seen
        }
        assert all(torch.equal(out, copy) for _, out, copy in seen)


class MeanOfThePast(nn.Module):
    def forward(self, x: Tensor, context: Context, *, cache: LayerCache | None = None) -> Tensor:
        return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


@dataclass(frozen=True)
class MeanConfig(AttentionConfig):
    def build(self, width: int, *, cross: bool = False) -> nn.Module:  # type: ignore[override]
        return MeanOfThePast()


def test_another_attention_is_a_config_and_a_module() -> None:
    config = BlockConfig(WIDTH, MeanConfig(1, WIDTH), FeedForwardConfig(8))
    stack, x = Stack(StackConfig(config, 2, causal=True)).eval(), torch.randn(1, LENGTH, WIDTH)
    block = stack.blocks[0]
    assert isinstance(block.attention, MeanOfThePast) and not list(block.attention.parameters())
    mean = block.attention_residual.norm(x).cumsum(1) / torch.arange(1, LENGTH + 1)[:, None]
    hidden = x + mean
    expected = hidden + block.feedforward(block.feedforward_residual.norm(hidden))
    torch.testing.assert_close(block(x, Context()), expected)
    assert stack(Embedded(x, positions_of(LENGTH, device=x.device))).shape == x.shape
