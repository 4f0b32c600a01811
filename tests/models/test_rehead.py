"""A trained model with a new head: what is below stays the very same tensors."""

import pytest
import torch
from torch import nn

from headway.errors import ConfigError
from headway.models import recipes
from headway.models.build import build
from headway.models.config import (
    ClassifyHeadConfig,
    LanguageHeadConfig,
    PoolerConfig,
    TokenHeadConfig,
)
from headway.models.decoder import Decoder
from headway.models.init import initialise
from headway.models.recipes import Size
from headway.models.rehead import with_head

SIZE = Size(width=16, layers=1, heads=2, dropout=0.0)
IDS = torch.tensor([[1, 2, 3], [4, 5, 0]])
MASK = torch.tensor([[True, True, True], [True, True, False]])


def encoder(head):
    model = build(recipes.encoder(SIZE, "classic", vocab=10, head=head))
    initialise(model, "classic", seed=3)
    return model.eval()


def test_below_the_head_the_tensors_are_shared():
    old = encoder(PoolerConfig())
    new = with_head(old, ClassifyHeadConfig(3, dense="tanh"))
    shared = dict(new.named_parameters())
    for name, tensor in old.named_parameters():
        assert shared[name] is tensor
    assert set(shared) - set(dict(old.named_parameters())) == {"head.project.weight", "head.project.bias"}
    assert new.config.head == ClassifyHeadConfig(3, dense="tanh") and old.config.head == PoolerConfig()


def test_the_pooled_vector_is_the_poolers_own():
    old = encoder(PoolerConfig())
    new = with_head(old, ClassifyHeadConfig(3, dense="tanh"))
    pooled = old(IDS, padding_mask=MASK).pooled
    output = new(IDS, padding_mask=MASK)
    assert torch.equal(output.pooled, pooled)
    assert torch.allclose(output.logits, pooled @ new.head.project.weight.T, atol=1e-7)


def test_a_dense_layer_for_another_activation_is_not_taken_over():
    old = encoder(PoolerConfig("tanh"))
    new = with_head(old, ClassifyHeadConfig(3, dense="relu"))
    assert new.head.dense is not old.head.dense
    assert not torch.equal(new.head.dense.weight, old.head.dense.weight)


def test_the_new_layer_depends_on_the_seed_alone():
    old = encoder(LanguageHeadConfig())
    first = with_head(old, TokenHeadConfig(4), seed=1).head.project.weight
    torch.rand(5)
    assert torch.equal(with_head(old, TokenHeadConfig(4), seed=1).head.project.weight, first)
    assert not torch.equal(with_head(old, TokenHeadConfig(4), seed=2).head.project.weight, first)
    assert 0 < first.abs().max() < 0.1


def test_type_and_mode_are_the_old_models():
    old = encoder(None).to(torch.bfloat16).train()
    new = with_head(old, TokenHeadConfig(4))
    assert {parameter.dtype for parameter in new.parameters()} == {torch.bfloat16}
    assert new.training and not with_head(old.eval(), TokenHeadConfig(4)).training


def test_a_decoder_stays_a_decoder():
    old = build(recipes.decoder(SIZE, "modern", vocab=10, context=7))
    new = with_head(old, ClassifyHeadConfig(3, pool="last", bias=False))
    assert isinstance(new, Decoder)
    assert new(IDS, padding_mask=MASK).logits.shape == (2, 3)
    assert new.max_length == 7


def test_other_shapes_are_refused():
    with pytest.raises(ConfigError, match="not on Linear"):
        with_head(nn.Linear(2, 2), TokenHeadConfig(2))


def test_positions_without_end_have_no_limit():
    assert encoder(None).max_length is None
