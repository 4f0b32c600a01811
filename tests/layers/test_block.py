"""The residual and the block: where the norm stands, what dropout touches, and that the whole is causal, equivariant
and has the gradients of its formula."""

import pytest
import torch
from torch import Tensor, nn

from headway.layers.attention import AttentionConfig
from headway.layers.block import Block, BlockConfig, Residual
from headway.layers.feedforward import ACTIVATIONS, FeedForward, FeedForwardConfig
from headway.layers.masks import CAUSAL, Mask, padding
from headway.layers.norms import NormConfig

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
    y = norms[0](x + block.attention(x, mask=CAUSAL))
    y = norms[1](y + block.cross(y, memory=memory))
    y = norms[2](y + block.feedforward(y))
    torch.testing.assert_close(block(x, mask=CAUSAL, memory=memory), y)


def test_pre_norm_leaves_the_stream_alone() -> None:
    block, x, memory = make(cross=True, norm_place="pre"), torch.randn(2, LENGTH, WIDTH), torch.randn(2, 3, WIDTH)
    norms = [r.norm for r in (block.attention_residual, block.cross_residual, block.feedforward_residual)]
    y = x + block.attention(norms[0](x), mask=CAUSAL)
    y = y + block.cross(norms[1](y), memory=memory)
    y = y + block.feedforward(norms[2](y))
    torch.testing.assert_close(block(x, mask=CAUSAL, memory=memory), y)


@pytest.mark.parametrize("place", ["pre", "post"])
def test_dropout_is_on_the_branch_before_it_is_added(place: str) -> None:
    config = BlockConfig(
        WIDTH, AttentionConfig(2, 4), FeedForwardConfig(4), norm=NormConfig(affine=False), norm_place=place, dropout=0.3
    )
    residual = Residual(config).train()
    heard: list[Tensor] = []
    residual.branch.register_forward_hook(lambda _m, _i, value: heard.append(value))
    x = torch.randn(500, LENGTH, WIDTH)
    got = residual(x, torch.ones_like)
    kept = heard[0] != 0
    assert abs(kept.float().mean().item() - 0.7) < 0.02
    torch.testing.assert_close(heard[0][kept], torch.full_like(heard[0][kept], 256 / (256 - round(0.3 * 256))))
    summed = x + heard[0]
    torch.testing.assert_close(got, nn.functional.layer_norm(summed, (WIDTH,)) if place == "post" else summed)
    residual.eval()
    residual(x, torch.ones_like)
    assert (heard[1] == 1).all()


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_a_block_is_causal_exactly(place: str, norm: str) -> None:
    block = make(norm_place=place, norm=NormConfig(norm))  # type: ignore[arg-type]
    x = torch.randn(1, LENGTH, WIDTH, requires_grad=True)
    y = block(x, mask=CAUSAL)
    for t in range(LENGTH):
        (gradient,) = torch.autograd.grad(y[:, t].sum(), x, retain_graph=True)
        assert (gradient[:, t + 1 :] == 0).all()
        changed = x.detach().clone()
        changed[:, t + 1 :] += 100
        assert torch.equal(block(changed, mask=CAUSAL)[:, : t + 1], y[:, : t + 1])


def test_a_block_without_positions_is_permutation_equivariant_unless_causal() -> None:
    block, x, order = make(gated=True), torch.randn(2, LENGTH, WIDTH), torch.tensor([4, 1, 0, 3, 2])
    torch.testing.assert_close(block(x[:, order]), block(x)[:, order])
    assert not torch.allclose(block(x[:, order], mask=CAUSAL), block(x, mask=CAUSAL)[:, order], atol=1e-3)


def test_a_batch_norm_is_told_which_tokens_are_padding() -> None:
    block = make(norm=NormConfig("batch"), norm_place="post").train()
    keep = torch.tensor([[1, 1, 1, 0, 0], [1] * 5])
    x = torch.randn(2, LENGTH, WIDTH)
    wild = torch.where(keep[:, :, None].bool(), x, torch.full_like(x, 50.0))
    one, other = (block(value, mask=padding(keep), padding_mask=keep) for value in (x, wild))
    torch.testing.assert_close(one[keep.bool()], other[keep.bool()])


@pytest.mark.parametrize("place", ["pre", "post"])
@pytest.mark.parametrize(("activation", "gated"), [("gelu_tanh", True), ("relu2", False), ("quick_gelu", False)])
def test_gradcheck_of_a_block(place: str, activation: str, gated: bool) -> None:
    block = make(cross=True, activation=activation, gated=gated, norm_place=place, norm=NormConfig("rms")).double()
    x = torch.randn(1, 3, WIDTH, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(1, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = Mask(torch.tensor([[True, True, False]] * 3), causal=True)
    assert torch.autograd.gradcheck(lambda y, m: block(y, mask=mask, memory=m), (x, memory))


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
