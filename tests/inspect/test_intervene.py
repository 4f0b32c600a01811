"""Interventions: each has its exact effect at the named tap, and leaves the model unchanged on exit."""

from contextlib import AbstractContextManager

import pytest
import torch
from support.subjects import Subject, make
from torch import Tensor

from headway.errors import InputError
from headway.inspect import ablate, patch, record, replace, scale, steer
from headway.inspect.parts import attentions_of, output_part, taps_of
from headway.layers.block import Residual
from headway.models.build import build
from headway.models.recipes import Size, recurrent

STREAM = "stack.blocks.1.feedforward_residual.stream"


def under(subject: Subject, context: AbstractContextManager[None]) -> Tensor:
    with context:
        return subject.logits()


def parts(subject: Subject) -> list[str]:
    """The names of the first block that has every kind of attention."""
    part = output_part(subject.model)
    block = part.model.stack.blocks[0]
    return [
        f"{part.prefix}stack.blocks.0.{kind}" for kind in ("attention", "cross") if getattr(block, kind) is not None
    ]


def without_branch(subject: Subject, part: str, monkeypatch: pytest.MonkeyPatch) -> Tensor:
    """The logits of the model with the branch's code taken out."""
    residual = subject.model.get_submodule(f"{part}_residual")
    assert isinstance(residual, Residual)
    with monkeypatch.context() as patched:
        patched.setattr(
            residual,
            "forward",
            lambda x, branch, padding_mask=None, modulated=None: residual.norm(x) if residual.post else x,
        )
        return subject.logits()


def test_an_ablated_layer_is_a_removed_layer(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = subject.logits()
    for part in parts(subject):
        gone = under(subject, ablate(subject.model, part))
        torch.testing.assert_close(gone, without_branch(subject, part, monkeypatch), atol=1e-5, rtol=1e-5)
        assert (gone - plain).abs().max() > 1e-2  # it did something
    assert torch.equal(subject.logits(), plain)


def test_all_heads_ablated_leave_the_output_bias_and_nothing_else(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part in parts(subject):
        headless = under(subject, ablate(subject.model, part, heads=range(4)))
        bias = subject.model.get_submodule(part).output.bias
        removed = without_branch(subject, part, monkeypatch)
        if bias is None:
            torch.testing.assert_close(headless, removed, atol=1e-5, rtol=1e-5)
        else:
            kept = under(subject, replace(subject.model, f"{part}_residual.branch", lambda b, s=bias: b * 0 + s))
            torch.testing.assert_close(headless, kept, atol=1e-5, rtol=1e-5)
            assert (headless - removed).abs().max() > 1e-2


def test_a_feedforward_can_be_ablated_too(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    part = parts(subject)[0].replace("attention", "feedforward")
    gone = under(subject, ablate(subject.model, part))
    torch.testing.assert_close(gone, without_branch(subject, part, monkeypatch), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("factor", [0.0, 0.5, -2.0])
def test_scaling_a_head_is_scaling_its_columns_of_the_output_matrix(subject: Subject, factor: float) -> None:
    part = parts(subject)[-1]
    scaled = under(subject, scale(subject.model, part, factor, heads=[2]))
    attention = attentions_of(subject.model)[part]
    size, weight = attention.config.head_size, attention.output.weight
    before = weight.detach().clone()
    with torch.no_grad():
        weight[:, 2 * size : 3 * size] *= factor
    expected = subject.logits()
    with torch.no_grad():
        weight.copy_(before)
    torch.testing.assert_close(scaled, expected, atol=1e-5, rtol=1e-5)
    assert (scaled - subject.logits()).abs().max() > 1e-4


def test_a_pattern_names_several_layers(gpt2: Subject) -> None:
    both = under(gpt2, ablate(gpt2.model, "stack.blocks.[01].attention"))
    with ablate(gpt2.model, "stack.blocks.0.attention"), ablate(gpt2.model, "stack.blocks.1.attention"):
        nested = gpt2.logits()
    assert torch.equal(both, nested)


def test_patching_in_the_own_value_changes_nothing(subject: Subject) -> None:
    plain = subject.logits()
    values = recorded(subject, ["*embedding.*", "*blocks.1.*", "*stack.final"])
    assert len(values) > 12
    for name, value in values.items():
        torch.testing.assert_close(under(subject, patch(subject.model, name, value)), plain, atol=1e-5, rtol=1e-5)


def recorded(subject: Subject, names: str | list[str]) -> dict[str, Tensor]:
    with torch.no_grad(), record(subject.model, names) as seen:
        subject.model(**subject.inputs)
    return {name: values[0] for name, values in seen.items()}


@pytest.mark.parametrize("tap", ["weights", "scores"])
def test_patched_weights_are_used(subject: Subject, tap: str) -> None:
    name = f"{parts(subject)[-1]}.{tap}"
    own = recorded(subject, name)[name]
    same = under(subject, patch(subject.model, name, own))
    torch.testing.assert_close(same, subject.logits(), atol=1e-5, rtol=1e-5)
    other = under(subject, patch(subject.model, name, own.roll(1, dims=1)))  # each head with its neighbour's
    assert (other - same).abs().max() > 1e-4


def other_run(gpt2: Subject) -> Subject:
    return Subject(
        gpt2.model, {"inputs": gpt2.inputs["inputs"].flip(0), "padding_mask": torch.ones(2, 7, dtype=torch.long)}
    )


def test_a_patched_last_stream_gives_the_other_runs_answer(gpt2: Subject) -> None:
    name = "stack.blocks.2.feedforward_residual.stream"
    own, other = gpt2.logits(), other_run(gpt2)
    value = recorded(other, name)[name]
    torch.testing.assert_close(under(gpt2, patch(gpt2.model, name, value)), other.logits())
    some = under(gpt2, patch(gpt2.model, name, value, positions=[1, -1]))
    torch.testing.assert_close(some[:, [1, 6]], other.logits()[:, [1, 6]])
    assert torch.equal(some[:, [0, 2, 3, 4, 5]], own[:, [0, 2, 3, 4, 5]])
    rows = under(gpt2, patch(gpt2.model, name, value[:, [1, -1]], positions=[1, -1]))
    assert torch.equal(rows, some)
    one = under(gpt2, patch(gpt2.model, name, value[:1]))
    torch.testing.assert_close(one, other.logits()[:1].expand_as(one))
    assert torch.equal(gpt2.logits(), own)


def test_an_earlier_patch_spreads_to_later_positions_only(gpt2: Subject) -> None:
    gpt2.inputs["padding_mask"] = torch.ones(2, 7, dtype=torch.long)
    value = recorded(other_run(gpt2), "embedding.sum")["embedding.sum"]
    changed = (under(gpt2, patch(gpt2.model, "embedding.sum", value, positions=[3])) - gpt2.logits()).abs().amax(-1)
    assert (changed[:, :3] == 0).all() and (changed[:, 3:] > 0).all()


def test_steering_adds_the_vector(gpt2: Subject) -> None:
    vector, before = torch.randn(24), recorded(gpt2, STREAM)[STREAM]
    with steer(gpt2.model, STREAM, vector, strength=1.5):
        torch.testing.assert_close(recorded(gpt2, STREAM)[STREAM], before + 1.5 * vector)
    with steer(gpt2.model, STREAM, vector, positions=[-2]):
        after = recorded(gpt2, STREAM)[STREAM]
    torch.testing.assert_close(after[:, 5], before[:, 5] + vector)
    assert torch.equal(after[:, [0, 1, 2, 3, 4, 6]], before[:, [0, 1, 2, 3, 4, 6]])
    torch.testing.assert_close(under(gpt2, steer(gpt2.model, STREAM, vector, strength=0.0)), gpt2.logits())


def test_steering_towards_a_token_makes_it_likelier(gpt2: Subject) -> None:
    towards = gpt2.model.embedding.tokens.weight[5].detach()
    name = "stack.blocks.2.feedforward_residual.stream"
    steps = [under(gpt2, steer(gpt2.model, name, towards, strength=s)).softmax(-1)[0, -1, 5] for s in (-2, 0, 2)]
    assert steps[0] < steps[1] < steps[2]


def test_gradients_pass_an_intervention(gpt2: Subject) -> None:
    factor = torch.ones((), requires_grad=True)
    with replace(gpt2.model, STREAM, lambda x: x * factor):
        gpt2.model(**gpt2.inputs).logits.square().sum().backward()
    assert factor.grad is not None and factor.grad.abs() > 0


def test_hooks_are_removed_after_an_error_inside_and_in_the_pass(gpt2: Subject) -> None:
    plain = gpt2.logits()
    with pytest.raises(ZeroDivisionError), ablate(gpt2.model, "*.attention"), steer(gpt2.model, STREAM, torch.ones(24)):
        raise ZeroDivisionError
    with pytest.raises(InputError, match=r"takes a value of shape \(2, 7, 24\), not \(2, 6, 24\)"):
        under(gpt2, patch(gpt2.model, STREAM, torch.zeros(2, 6, 24)))
    assert not any(tap.hooked for tap in taps_of(gpt2.model).values())
    assert torch.equal(gpt2.logits(), plain)


def test_errors_name_the_cause(gpt2: Subject) -> None:
    model = gpt2.model
    with pytest.raises(InputError, match=r"no attention or feed-forward .* close: stack\.blocks\.0\.attention"):
        ablate(model, "stack.blocks.0.atention")
    with pytest.raises(InputError, match="heads 0 to 3, not 4"):
        ablate(model, "stack.blocks.0.attention", heads=[4])
    with pytest.raises(InputError, match=r"no attention is named 'stack\.blocks\.0\.feedforward'"):
        ablate(model, "stack.blocks.0.feedforward", heads=[0])
    with pytest.raises(InputError, match="a vector of 24 numbers"):
        under(gpt2, steer(model, STREAM, torch.ones(23)))
    with pytest.raises(InputError, match="has 7 positions, so 9 is out of range"):
        under(gpt2, steer(model, STREAM, torch.ones(24), positions=[9]))
    with pytest.raises(InputError, match="never fired"), ablate(model, "stack.blocks.0.attention"):
        pass
    assert not any(tap.hooked for tap in taps_of(model).values())


def test_a_recurrent_alignment_can_be_recorded_but_not_replaced() -> None:
    model = build(recurrent(Size(width=16, layers=1, heads=2), vocab=20, start_id=1))
    with (
        pytest.raises(InputError, match="can be recorded but not replaced"),
        replace(model, "cross.weights", lambda w: w * 0),
    ):
        pytest.fail("it went in")
    subject = Subject(model.eval(), {"inputs": torch.tensor([[3, 4]]), "decoder_ids": torch.tensor([[1, 5]])})
    assert not torch.equal(under(subject, steer(model, "embedding.sum", torch.ones(16))), subject.logits())


def test_the_outer_of_two_is_applied_last() -> None:
    subject = make("llama")
    with scale(subject.model, "stack.blocks.0.attention", 3.0), ablate(subject.model, "stack.blocks.0.attention"):
        both = subject.logits()
    assert torch.equal(both, under(subject, ablate(subject.model, "stack.blocks.0.attention")))
    name = "stack.blocks.0.attention_residual.branch"
    one = torch.ones(1, 7, 24)
    with patch(subject.model, name, one), ablate(subject.model, "stack.blocks.0.attention"):
        assert torch.equal(recorded(subject, name)[name], one.expand(2, -1, -1))
