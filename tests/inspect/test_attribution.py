"""Direct logit attribution: the contributions add up to the logit, and each is right."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from support.subjects import Subject, make
from torch import nn

from headway.engine.int8 import quantise
from headway.errors import InputError
from headway.inspect import attribute, record
from headway.layers.norms import NormConfig
from headway.models.build import build
from headway.models.config import ClassifyHeadConfig, PoolerConfig
from headway.models.recipes import Size, decoder, encoder, recurrent
from headway.training.lora import add_lora

SIZE = Size(width=24, layers=2, heads=4)


def randomised(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model


def adapt(model: nn.Module) -> None:
    add_lora(model, rank=2)
    randomised(model)


def test_the_parts_sum_to_the_logit(headed: Subject) -> None:
    logits = headed.logits()
    for row in range(2):
        for position in (-1, 0, 3):
            found = attribute(headed.model, headed.inputs, 1, position=position, row=row)
            expected = logits[row, 1] if logits.ndim == 2 else logits[row, position, 1]
            assert found.logit == pytest.approx(expected.item(), abs=1e-6)
            assert found.total == pytest.approx(found.logit, abs=1e-5)


def test_each_part_is_named_once_and_counts(headed: Subject) -> None:
    found = attribute(headed.model, headed.inputs, 1)
    names = [(part.name, part.head) for part in found.parts]
    assert len(set(names)) == len(names)
    assert found.parts[0].name.endswith("embedding")
    heads = {name: head for name, head in names if head is not None}
    assert all(last == 3 for last in heads.values())  # the last of four heads, in order
    for part in found.parts:  # without any of them the sum would not hold
        assert abs(part.value) > 1e-6, part


def test_a_contribution_is_the_output_times_the_gradient(gpt2: Subject) -> None:
    """GPT-2 by hand: the final norm held at its scale, then the token's row of the table."""
    model, block = gpt2.model, "stack.blocks.1"
    names = [f"{block}.attention.z", f"{block}.feedforward_residual.branch", "embedding.sum"]
    last = "stack.blocks.2.feedforward_residual.stream"
    with torch.no_grad(), record(model, [*names, last]) as seen:
        model(**gpt2.inputs)
    z, branch, embedding, stream = (seen[name][0][0] for name in [*names, last])
    norm, scale = model.stack.final_norm, (stream[4].var(unbiased=False) + 1e-5).sqrt()

    def worth(written: torch.Tensor) -> float:
        return ((written - written.mean()) / scale * norm.weight @ model.embedding.tokens.weight[7]).item()

    parts = {(p.name, p.head): p.value for p in attribute(model, gpt2.inputs, 7, position=4).parts}
    attention = model.get_submodule(f"{block}.attention")
    assert parts["embedding", None] == pytest.approx(worth(embedding[4]), abs=1e-5)
    assert parts[f"{block}.feedforward", None] == pytest.approx(worth(branch[4]), abs=1e-5)
    for head in range(4):
        wrote = attention.output.weight[:, 6 * head : 6 * head + 6] @ z[head, 4]
        assert parts[f"{block}.attention", head] == pytest.approx(worth(wrote), abs=1e-5)
    assert parts[f"{block}.attention.output.bias", None] == pytest.approx(worth(attention.output.bias), abs=1e-5)
    shift = (norm.bias @ model.embedding.tokens.weight[7]).item()
    assert parts["stack.final_norm.bias", None] == pytest.approx(shift, abs=1e-5)


def test_the_last_heads_of_a_post_norm_model_by_gradient() -> None:
    """With the scales held, a post-norm model is linear in what its last attention writes: the gradient through norms
    whose scale is held says the same."""
    subject = make("bert tags")
    model, name = subject.model, "stack.blocks.2.attention"
    parts = {(p.name, p.head): p.value for p in attribute(model, subject.inputs, 1, position=2).parts}
    branches = [f"stack.blocks.2.{kind}_residual.branch" for kind in ("attention", "feedforward")]
    taps = [f"{name}.z", *branches, "stack.blocks.1.feedforward_residual.stream"]
    with torch.no_grad(), record(model, taps) as seen:
        model(**subject.inputs)
    z, attended, fed, before = (seen[tap][0][0] for tap in taps)
    block, wrote = model.stack.blocks[2], torch.zeros(24, requires_grad=True)

    def held(norm: nn.LayerNorm, x: torch.Tensor) -> torch.Tensor:
        scale = (x.detach().var(unbiased=False) + norm.eps).sqrt()
        return (x - x.mean()) / scale * norm.weight + norm.bias

    x = held(block.attention_residual.norm, before[2] + attended[2] + wrote)
    x = held(block.feedforward_residual.norm, x + fed[2])
    (pull,) = torch.autograd.grad(x @ model.head.project.weight[1], wrote)
    for head in range(4):
        expected = pull @ block.attention.output.weight[:, 6 * head : 6 * head + 6] @ z[head, 2]
        assert parts[name, head] == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("pool", ["first", "last", "mean"])
@pytest.mark.parametrize("dense", [None, "tanh", "relu"])
def test_pooling_heads(pool: str, dense: str | None) -> None:
    head = ClassifyHeadConfig(3, pool=pool, dense=dense)
    model = randomised(build(encoder(SIZE, "modern", vocab=31, head=head))).eval()
    inputs = {"inputs": torch.randint(0, 31, (2, 6)), "padding_mask": torch.tensor([[1] * 6, [0] * 2 + [1] * 4])}
    for row in range(2):
        found = attribute(model, inputs, 2, row=row)
        assert found.total == pytest.approx(model(**inputs).logits[row, 2].item(), abs=1e-5)


@pytest.mark.parametrize("place", ["pre", "post"])
def test_batch_norm(place: str) -> None:
    config = decoder(SIZE, "classic", vocab=31, context=32)
    block = replace(config.stack.block, norm=NormConfig("batch"), norm_place=place)
    model = randomised(build(replace(config, stack=replace(config.stack, block=block, final_norm=place == "pre"))))
    ids = torch.randint(0, 31, (4, 9))
    for _ in range(3):
        model.train()(ids)  # running statistics that are not those of the pass
    found = attribute(model, {"inputs": ids}, 3)
    assert model.training
    assert found.total == pytest.approx(model.eval()(ids).logits[0, -1, 3].item(), abs=1e-5)


@pytest.mark.parametrize("name", ["llama", "bert words"])
@pytest.mark.parametrize("store", [quantise, adapt])
def test_matrices_stored_another_way(
    name: str, store: Callable[[nn.Module], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headway.engine.int8.can_compile", lambda: False)
    subject = make(name)
    plain = attribute(subject.model, subject.inputs, 1)
    store(subject.model)
    found = attribute(subject.model, subject.inputs, 1)
    assert found.total == pytest.approx(found.logit, abs=1e-5)
    assert found.logit != plain.logit


def test_models_without_logits_raise_in_attribution() -> None:
    inputs = {"inputs": torch.tensor([[1, 2]])}
    with pytest.raises(InputError, match="no head"):
        attribute(build(encoder(SIZE, "modern", vocab=9)), inputs, 0)
    with pytest.raises(InputError, match="no head that gives logits"):
        attribute(build(encoder(SIZE, "modern", vocab=9, head=PoolerConfig())), inputs, 0)
    with pytest.raises(InputError, match="RecurrentEncoderDecoder has no blocks"):
        attribute(build(recurrent(SIZE, vocab=20, start_id=1)), {}, 0)
