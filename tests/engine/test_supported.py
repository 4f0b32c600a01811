"""The engine refuses what it does not implement: an option or a module that is new to it runs as plain PyTorch."""

import dataclasses
from dataclasses import field, make_dataclass, replace
from typing import Any

import pytest
import torch
from support.variants import DECODER, VARIANTS, random_model, with_block
from torch import Tensor

from headway.engine import prepare, unsupported_reason
from headway.engine.inplace import FastBlock
from headway.engine.supported import COMPILED_STEP, INPLACE_BLOCK, PREFILL, unsupported_config
from headway.layers.block import NO_CACHE, Block, BlockConfig
from headway.layers.cache import BlockCache
from headway.layers.context import Context
from headway.layers.feedforward import FeedForward
from headway.models.build import build

RULES = {"compiled step": COMPILED_STEP, "in-place block": INPLACE_BLOCK, "prefill": PREFILL}
LISTED = [(name, config) for name, rules in RULES.items() for config in rules]


@pytest.mark.parametrize(("name", "config"), LISTED, ids=lambda part: getattr(part, "__name__", part))
def test_a_new_field_must_have_its_default_value(name: str, config: type) -> None:
    """The field is added to every config class in turn, with all its other fields at values that are implemented."""
    rules = RULES[name]
    extended = make_dataclass(
        "Extended", [("new_option", bool, field(default=False, kw_only=True))], bases=(config,), frozen=True
    )
    values = {part.name: example(part, rules[config].get(part.name, ())) for part in dataclasses.fields(config)}
    known = {**rules, extended: rules[config]}
    assert unsupported_config(extended(**values), known) is None
    assert unsupported_config(extended(**values, new_option=True), known) == "config.new_option is True"
    assert unsupported_config(extended(**values), rules) == "config is an Extended", "a class that is not listed"


def example(part: dataclasses.Field[Any], rule: tuple[Any, ...]) -> Any:
    if part.default is not dataclasses.MISSING and (not rule or part.default in rule or "any value" in rule):
        return part.default
    return rule[0] if rule and rule[0] not in ("any value", "None, or configs that are listed too") else None


@pytest.mark.parametrize("name", RULES)
def test_only_fields_that_exist_are_listed(name: str) -> None:
    for config, rules in RULES[name].items():
        assert rules.keys() <= {part.name for part in dataclasses.fields(config)}, config.__name__


@dataclasses.dataclass(frozen=True)
class OtherBlockConfig(BlockConfig):
    other: bool = False


class ParallelBlock(Block):
    def forward(self, x: Tensor, context: Context, *, cache: BlockCache = NO_CACHE) -> Tensor:
        normed = self.attention_residual.before(x, context.padding_mask)
        return x + self.attention(normed, context, cache=cache.attention) + self.feedforward(normed)


class ScaledFeedForward(FeedForward):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


def with_new_block(model: Any) -> None:
    for block in model.stack.blocks:
        block.__class__ = ParallelBlock


def with_new_feedforward(model: Any) -> None:
    model.stack.blocks[-1].feedforward.__class__ = ScaledFeedForward


def with_replaced_forward(model: Any) -> None:
    layer = model.stack.blocks[0].feedforward
    plain = layer.forward
    layer.forward = lambda x: 3 * plain(x)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (with_new_block, "ParallelBlock"),
        (with_new_feedforward, "ScaledFeedForward"),
        (with_replaced_forward, "forward"),
    ],
)
@torch.no_grad()
def test_an_unknown_module_runs_as_it_is(change: Any, name: str) -> None:
    model, plain = random_model(DECODER), random_model(DECODER)
    expected = logits(plain)
    change(model), change(plain)
    changed = logits(plain)
    assert not all(torch.allclose(a, b) for a, b in zip(changed, expected, strict=True)), "control: it has an effect"
    for ours, theirs in zip(logits(prepare(model)), changed, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)
    assert name in str(unsupported_reason(model))
    assert name != "ParallelBlock" or not any(type(block) is FastBlock for block in model.stack.blocks)


@torch.no_grad()
def test_an_unknown_option_keeps_the_plain_blocks_and_step() -> None:
    block = DECODER.stack.block
    known = {part.name: getattr(block, part.name) for part in dataclasses.fields(block)}
    config = replace(DECODER, stack=replace(DECODER.stack, block=OtherBlockConfig(**known, other=True)))
    model = prepare(build(config).eval())
    logits(model)
    assert "config.stack.block is an OtherBlockConfig" in str(unsupported_reason(model))
    assert all(type(part) is Block for part in model.stack.blocks)
    same = prepare(build(with_block(DECODER, dropout=0.1)).eval())
    logits(same)
    assert unsupported_reason(same) is None and all(type(part) is FastBlock for part in same.stack.blocks)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_every_slot_gives_the_same_logits(name: str) -> None:
    """Implemented or refused, never computed wrongly."""
    model = random_model(VARIANTS[name])
    expected = logits(model)
    for ours, theirs in zip(logits(prepare(model)), expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def logits(model: Any) -> list[Tensor]:
    """A prompt that is long enough for the prefill, then steps."""
    torch.manual_seed(1)
    ids, cache = torch.randint(1, 20, (2, 24)), model.new_cache(2)
    return [model.step(part, cache) for part in (ids[:, :20], ids[:, 20:21], ids[:, 21:24])]
