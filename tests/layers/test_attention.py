"""Multi-head attention: against torch's own, grouped against repeated, cache against none; permutation-equivariant
without positions; and taps that listen without touching."""

import copy

import pytest
import torch
from torch import Tensor, nn

from headway.layers import attention as attention_module
from headway.layers.attention import Attention, AttentionConfig
from headway.layers.cache import LayerCache
from headway.layers.context import Context
from headway.layers.masks import CAUSAL, Mask, padding
from headway.layers.norms import NormConfig
from headway.layers.positions import positions_of
from headway.layers.rotary import Rotary, RotaryConfig

WIDTH, LENGTH = 12, 6


def make(*, cross: bool = False, **config: object) -> Attention:
    settings = {"heads": 4, "head_size": 3, **config}
    return Attention(WIDTH, AttentionConfig(**settings), cross=cross).eval()  # type: ignore[arg-type]


def run(layer: Attention, x: Tensor, *, cache: LayerCache | None = None, **context: object) -> Tensor:
    return layer(x, Context(**context), cache=cache)  # type: ignore[arg-type]


def inputs(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(2, LENGTH, WIDTH, dtype=dtype)


@pytest.mark.parametrize("cross", [False, True])
def test_it_is_torchs_multi_head_attention(cross: bool) -> None:
    ours, theirs = make(cross=cross), nn.MultiheadAttention(WIDTH, 4, batch_first=True).eval()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]))
        theirs.out_proj.weight.copy_(ours.output.weight)
        theirs.out_proj.bias.copy_(ours.output.bias)
    x, memory = inputs(), torch.randn(2, 9, WIDTH)
    source = memory if cross else x
    keep = torch.ones(2, source.shape[1], dtype=torch.bool)
    keep[0, -2:] = False
    expected, _ = theirs(x, source, source, key_padding_mask=~keep)
    torch.testing.assert_close(
        run(ours, x, memory=memory, **{"memory_mask" if cross else "mask": padding(keep)}), expected
    )


@pytest.mark.parametrize("kv_heads", [2, 1])
def test_grouped_and_multi_query_are_repeated_heads(kv_heads: int) -> None:
    grouped, whole = make(kv_heads=kv_heads), make()
    with torch.no_grad():
        for name in ("query", "output"):
            getattr(whole, name).load_state_dict(getattr(grouped, name).state_dict())
        for name in ("key", "value"):
            for leaf in ("weight", "bias"):
                few = getattr(getattr(grouped, name), leaf).unflatten(0, (kv_heads, 3))
                getattr(getattr(whole, name), leaf).copy_(few.repeat_interleave(4 // kv_heads, dim=0).flatten(0, 1))
    x = inputs()
    torch.testing.assert_close(run(grouped, x, mask=CAUSAL), run(whole, x, mask=CAUSAL))
    assert grouped.key.weight.shape[0] == kv_heads * 3


def test_bias_names_the_projections_that_have_one() -> None:
    layer = make(bias="qo")
    assert [getattr(layer, name).bias is not None for name in ("query", "key", "value", "output")] == [1, 0, 0, 1]


def test_permutation_equivariant_without_positions_and_not_with() -> None:
    x, order = inputs(), torch.tensor([3, 0, 5, 1, 4, 2])
    plain = make()
    torch.testing.assert_close(run(plain, x[:, order]), run(plain, x)[:, order])
    rotary = Rotary(4, RotaryConfig())(positions_of(LENGTH, device=x.device), dtype=x.dtype)
    turned = make(heads=3, head_size=4)
    assert not torch.allclose(
        run(turned, x[:, order], rotary=rotary), run(turned, x, rotary=rotary)[:, order], atol=1e-3
    )
    assert not torch.allclose(run(plain, x[:, order], mask=CAUSAL), run(plain, x, mask=CAUSAL)[:, order], atol=1e-3)


@pytest.mark.parametrize("chunk", [1, 2, 4])
def test_cached_is_uncached(chunk: int) -> None:
    layer = make(kv_heads=2, qk_norm=NormConfig("rms"))
    x, cache = inputs(), LayerCache()
    steps = [run(layer, x[:, at : at + chunk], mask=CAUSAL, cache=cache) for at in range(0, LENGTH, chunk)]
    torch.testing.assert_close(torch.cat(steps, dim=1), run(layer, x, mask=CAUSAL))


def test_cross_attention_reads_its_source_once() -> None:
    layer, x, memory, cache = make(cross=True), inputs(), torch.randn(2, 9, WIDTH), LayerCache()
    first = run(layer, x[:, :1], memory=memory, cache=cache)
    layer.key.register_forward_hook(lambda *_: pytest.fail("the source's keys were computed again"))
    again = run(layer, x[:, 1:2], memory=memory, cache=cache)
    layer.key._forward_hooks.clear()
    torch.testing.assert_close(torch.cat([first, again], dim=1), run(layer, x[:, :2], memory=memory))


def test_gradcheck_of_the_whole_layer() -> None:
    layer = make(kv_heads=2, qk_norm=NormConfig("rms"), scale=0.7).double()
    x = inputs(torch.float64)[:1, :3].detach().requires_grad_()
    bias = torch.randn(1, 4, 3, 3, dtype=torch.float64, requires_grad=True)
    parameters = tuple(layer.parameters())
    assert torch.autograd.gradcheck(lambda y, b, *_: run(layer, y, bias=b, mask=CAUSAL), (x, bias, *parameters))


# ---------------------------------------------------------------------------------------- taps


def listen(layer: Attention, tap: str) -> tuple[list[Tensor], torch.utils.hooks.RemovableHandle]:
    heard: list[Tensor] = []
    return heard, getattr(layer, tap).register_forward_hook(lambda _m, _i, value: heard.append(value.detach()))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("tap", ["weights", "scores", "q", "k", "v", "z"])
def test_listening_does_not_change_the_output(tap: str, training: bool) -> None:
    layer, x = make(kv_heads=2).train(training), inputs()
    mask = CAUSAL & padding(torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6]))
    quiet = run(layer, x, mask=mask)
    heard, hook = listen(layer, tap)
    assert torch.equal(run(layer, x, mask=mask), quiet)
    hook.remove()
    shapes = {"weights": (2, 4, 6, 6), "scores": (2, 4, 6, 6), "q": (2, 4, 6, 3), "k": (2, 2, 6, 3), "v": (2, 2, 6, 3)}
    assert [value.shape for value in heard] == [shapes.get(tap, (2, 4, 6, 3))]


def test_the_weights_that_are_heard_sum_to_one_and_explain_the_output() -> None:
    layer, x = make(), inputs()
    heard, hook = listen(layer, "weights")
    values, second = listen(layer, "v")
    z, third = listen(layer, "z")
    run(layer, x, mask=CAUSAL)
    for each in (hook, second, third):
        each.remove()
    torch.testing.assert_close(heard[0].sum(-1), torch.ones(2, 4, LENGTH))
    assert (heard[0].triu(1) == 0).all()
    torch.testing.assert_close(heard[0] @ values[0], z[0])


def test_without_listeners_the_fast_path_is_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    explicit = attention_module.attention_weights
    monkeypatch.setattr(
        attention_module, "attention_weights", lambda *a, **kw: calls.append("explicit") or explicit(*a, **kw)
    )
    layer, x = make(), inputs()
    run(layer, x)
    assert calls == []
    _, hook = listen(layer, "weights")
    run(layer, x)
    assert calls == ["explicit"]
    hook.remove()
    run(layer, x)
    assert calls == ["explicit"] and not layer.weights.hooked


@pytest.mark.parametrize("dropout", [0.0, 0.375])
@pytest.mark.parametrize("tap", ["weights", "scores"])
def test_a_listener_may_replace_what_it_hears(tap: str, dropout: float) -> None:
    """Weights all on the first key, or scores that say so, in evaluation and in training with dropout."""
    layer, x = make(kv_heads=2, dropout=dropout).train(), inputs()

    def first(_module: nn.Module, _inputs: object, value: Tensor) -> Tensor:
        replaced = torch.full_like(value, 0.0 if tap == "weights" else -torch.inf)
        replaced[..., 0] = 1.0
        return replaced

    getattr(layer, tap).register_forward_hook(first)
    z, _ = listen(layer, "z")
    run(layer, x)
    values = (
        layer.value(x)[:, 0].unflatten(-1, (2, 3)).repeat_interleave(2, dim=1)[:, :, None]
    )  # (batch, head, 1, size)
    kept = z[0].abs().sum(-1) > 0  # what dropout left
    scaled = (values / (1 - dropout)).expand_as(z[0])
    torch.testing.assert_close(z[0][kept], scaled[kept])
    assert kept.all() if dropout == 0 else 0 < kept.float().mean() < 1


def test_replaced_scores_of_a_query_that_sees_nothing_stay_finite() -> None:
    layer, x = make(), inputs()
    layer.scores.register_forward_hook(lambda _m, _i, value: value * 2)
    got = run(layer, x, mask=CAUSAL & padding(torch.tensor([[0, 0, 1, 1, 1, 1], [1] * 6])))
    assert torch.isfinite(got).all()


@pytest.mark.parametrize("listening", [False, True], ids=["fast", "explicit"])
def test_dropout_is_on_in_training_only_and_keeps_the_expectation(listening: bool) -> None:
    layer = make(dropout=0.5)
    x = inputs()[:1, :3]
    expected = run(layer, x)
    assert torch.equal(run(layer, x), expected)
    layer.train()
    if listening:
        heard, _ = listen(layer, "weights")
    with torch.no_grad():
        drawn = run(layer, x.expand(6000, -1, -1))
    error = drawn.std(0) / 6000**0.5
    assert (drawn.std(0) > 0).all()
    assert ((drawn.mean(0) - expected[0]).abs() < 5 * error).all()
    if listening:
        torch.testing.assert_close(heard[0].sum(-1), torch.ones(6000, 4, 3))  # heard before dropout


def test_a_copy_of_a_layer_does_not_share_its_listeners_state() -> None:
    layer, x = make(), inputs()
    twin = copy.deepcopy(layer)
    heard, _ = listen(twin, "weights")
    run(layer, x)
    assert heard == []
    assert torch.equal(run(twin, x, mask=Mask()), run(layer, x))
