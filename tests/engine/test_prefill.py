"""Prefill in the engine: the last block leaves out what nothing depends on, blocks write over their own results, and
what a caller or a hook sees does not change."""

from typing import Any

import pytest
import torch
from support.subjects import make

from headway import inspect
from headway.engine import inplace, prefill, prepare, release
from headway.layers.block import Block

DECODERS = ["gpt2", "llama", "mistral window", "modern decoder", "classic decoder"]


@pytest.fixture(autouse=True)
def short_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill, "TAIL", 2)


@pytest.mark.parametrize("lengths", [None, [7, 5]])
@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_prefill_equals_the_plain_step(name: str, lengths: list[int] | None) -> None:
    model: Any = make(name).model
    ids, more = torch.randint(3, 31, (2, 7)), torch.randint(3, 31, (2, 6))
    caches = [model.new_cache(2) for _ in range(2)]
    plain = [model.step(part, caches[0], lengths=lengths) for part in (ids, more) if part is ids or lengths is None]
    prepare(model)
    model.step.reason = "the compiled step is not what is tested"
    fast = [model.step(part, caches[1], lengths=lengths) for part in (ids, more) if part is ids or lengths is None]
    for ours, theirs in zip(fast, plain, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    assert caches[0].lengths == caches[1].lengths
    for ours, theirs in zip(caches[1].layers, caches[0].layers, strict=True):
        torch.testing.assert_close(ours.keys, theirs.keys, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_the_others_are_left_out_unless_a_hook_would_see_it() -> None:
    model: Any = prepare(make("llama").model)
    ids, lengths = torch.randint(3, 31, (2, 7)), []
    up = model.stack.blocks[-1].feedforward.up
    multiply = up.forward

    def counted(x: torch.Tensor) -> torch.Tensor:
        lengths.append(x.shape[1])
        return multiply(x)

    up.forward = counted
    model.step(ids, model.new_cache(2))
    with inspect.record(model, "*feedforward_residual.branch") as seen:
        model.step(ids, model.new_cache(2))
    assert lengths == [2, 7]
    assert all(value[0].shape[1] == 7 for value in seen.values())


@pytest.mark.parametrize("name", [*DECODERS, "bert words", "modern encoder-decoder"])
@torch.no_grad()
def test_fast_blocks_give_the_same_numbers_and_hooks_see_true_values(name: str) -> None:
    subject = make(name)
    plain = subject.model(**subject.inputs)
    prepare(subject.model)
    blocks = [part for part in subject.model.modules() if isinstance(part, Block)]
    assert blocks and all(type(block) is inplace.FastBlock for block in blocks)
    torch.testing.assert_close(subject.model(**subject.inputs).hidden, plain.hidden, rtol=1e-6, atol=1e-6)
    for target in ("attention.output", "feedforward.up", "feedforward.down", "attention", "feedforward"):
        seen = []
        handle = (
            blocks[0]
            .get_submodule(target)
            .register_forward_hook(lambda _m, _i, out, seen=seen: seen.append((out, out.clone())))
        )
        subject.model(**subject.inputs)
        handle.remove()
        assert seen and all(torch.equal(out, copy) for out, copy in seen), target
    release(subject.model)
    assert all(type(block) is Block for block in blocks)


def test_a_block_of_another_class_is_left_alone() -> None:
    class Other(Block):
        pass

    model: Any = make("llama").model
    model.stack.blocks[0].__class__ = Other
    prepare(model)
    assert type(model.stack.blocks[0]) is Other and type(model.stack.blocks[1]) is inplace.FastBlock
