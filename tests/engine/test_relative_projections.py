"""Kept projections of relative positions: the numbers of the plain model, computed once, and again after a change."""

import pytest
import torch
from support.variants import random_model

from headway.engine import prepare, release
from headway.families import find
from headway.families.family import Keys
from headway.layers.relative import DisentangledBias
from headway.layers.transformer_xl import TransformerXLBias

DEBERTA = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 20,
           "vocab_size": 30, "relative_attention": True, "pos_att_type": "c2p|p2c", "position_biased_input": False,
           "share_att_key": True, "position_buckets": 8, "max_relative_positions": 40}  # fmt: skip
XLNET = {"d_model": 16, "n_head": 2, "n_layer": 2, "d_inner": 20, "vocab_size": 30}
MODELS = {"deberta-v2": (DEBERTA, "DebertaV2Model"), "xlnet": (XLNET, "XLNetModel")}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_they_are_those_of_the_plain_model(name: str) -> None:
    keys, architecture = MODELS[name]
    model = random_model(find(name).read(Keys(keys), architecture)).eval()
    texts = [torch.randint(30, (2, length)) for length in (3, 7, 3)]
    expected = [model(ids).hidden for ids in texts]
    prepare(model)
    bias = model.stack.blocks[0].attention.score_bias
    for ids, hidden in zip(texts, expected, strict=True):
        torch.testing.assert_close(model(ids).hidden, hidden)
    layer = bias.key or model.stack.blocks[0].attention.key
    kept = bias.kept_projections[layer][2]
    model(texts[-1])
    assert bias.kept_projections[layer][2] is kept, "computed again"
    layer.weight.mul_(2.0)
    changed = model(texts[-1]).hidden
    assert type(release(model).stack.blocks[0].attention.score_bias) in (DisentangledBias, TransformerXLBias)
    torch.testing.assert_close(changed, model(texts[-1]).hidden)
    assert (changed - expected[-1]).abs().max() > 1e-3
