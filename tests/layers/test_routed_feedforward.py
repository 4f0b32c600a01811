"""A router that chooses experts for each token: written out, with gradients, and refused where it cannot be."""

import pytest
import torch
from support.variants import random_model

from headway.engine import prepare, unsupported_reason
from headway.engine.int8 import Int8Linear
from headway.errors import ConfigError
from headway.families import find
from headway.families.family import Keys
from headway.generation import GenerationSettings, generate
from headway.layers.feedforward import FeedForwardConfig, RoutedFeedForward
from headway.models.build import build

MIXTRAL = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2,
           "intermediate_size": 20, "vocab_size": 31, "num_local_experts": 3}  # fmt: skip


def test_the_chosen_experts_are_summed() -> None:
    torch.manual_seed(0)
    layer = FeedForwardConfig(6, activation="silu", gated=True, bias=False, experts=4, chosen=2).build(5)
    assert isinstance(layer, RoutedFeedForward)
    x = torch.randn(2, 3, 5, requires_grad=True)
    scores = layer.router(x)  # (batch, length, expert)
    expected = torch.zeros_like(x)
    for row in range(2):
        for place in range(3):
            best = scores[row, place].topk(2).indices
            weights = scores[row, place, best].softmax(-1)
            for weight, number in zip(weights, best.tolist(), strict=True):
                expected[row, place] = expected[row, place] + weight * layer.experts[number](x[row, place])
    got = layer(x)
    torch.testing.assert_close(got, expected)
    direction = torch.randn_like(got)
    ours, written = (torch.autograd.grad((out * direction).sum(), x, retain_graph=True)[0] for out in (got, expected))
    torch.testing.assert_close(ours, written)


def test_more_chosen_than_there_are() -> None:
    config = find("mixtral").read(Keys(MIXTRAL | {"num_experts_per_tok": 4}), "MixtralForCausalLM")
    with pytest.raises(ConfigError, match="chosen is 4: there are 3 experts"):
        build(config)


def test_the_compiled_step_is_refused_by_name() -> None:
    """A prepared model generates what the plain one does, by its own modules; int8 leaves the router as it is."""
    model = random_model(find("mixtral").read(Keys(MIXTRAL), "MixtralForCausalLM")).eval()
    settings = GenerationSettings(max_new_tokens=6)
    ((plain,),) = generate(model, [[1, 2, 3]], settings)
    ((fast,),) = generate(prepare(model), [[1, 2, 3]], settings)
    assert fast.ids == plain.ids
    assert str(unsupported_reason(model)).startswith("config.stack.block.feedforward.experts is 3")
    before = model.stack.blocks[0].feedforward.router.weight.clone()
    prepare(model, "int8")
    assert torch.equal(model.stack.blocks[0].feedforward.router.weight, before)
    assert isinstance(model.stack.blocks[0].feedforward.experts[0].up, Int8Linear)
