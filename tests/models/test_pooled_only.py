"""A head that reads one token: the last block computes that token alone, with the logits and gradients of all."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from support.variants import ENCODER, SIZE, random_model, with_attention, with_block, with_stack

from headway.families import find
from headway.families.family import Keys
from headway.layers.norms import NormConfig
from headway.layers.score_bias import RelativeBiasConfig, RelativeKeyConfig
from headway.models.config import ClassifyHeadConfig
from headway.models.recipes import encoder

DEBERTA = {
    "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 20, "vocab_size": 20,
    "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "position_biased_input": False, "position_buckets": 8,
    "max_relative_positions": 40, "share_att_key": True, "norm_rel_ebd": "layer_norm", "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
FIRST, LAST = ClassifyHeadConfig(3, pool="first", dense="tanh"), ClassifyHeadConfig(3, pool="last")
CASES = {
    "post-norm": replace(ENCODER, head=FIRST),
    "last token": replace(ENCODER, head=LAST),
    "pre-norm": replace(with_block(ENCODER, norm_place="pre"), head=LAST),
    "relative keys": replace(with_attention(ENCODER, score_bias=RelativeKeyConfig(3)), head=LAST),
    "relative bias": replace(with_stack(ENCODER, score_bias=RelativeBiasConfig()), head=FIRST),
    "deberta": replace(find("deberta-v2").read(Keys(DEBERTA), "DebertaV2Model"), head=FIRST),
}
WHOLE = {
    "mean": replace(ENCODER, head=ClassifyHeadConfig(3, pool="mean")),
    "rotary": replace(encoder(SIZE, "modern", vocab=20), head=FIRST),
    "batch norm": replace(with_block(ENCODER, norm=NormConfig("batch")), head=FIRST),
}
IDS = torch.randint(20, (3, 7), generator=torch.Generator().manual_seed(1))
REAL = torch.tensor([[0, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0, 0], [1] * 7])


def results(model: Any, **options: Any) -> tuple[Any, list[torch.Tensor]]:
    output = model(IDS, **options)
    weight = torch.arange(9.0).view(3, 3)
    return output, list(
        torch.autograd.grad((output.logits * weight).sum(), list(model.parameters()), allow_unused=True)
    )


@pytest.mark.parametrize("real", [None, REAL], ids=["whole", "padded"])
@pytest.mark.parametrize("case", CASES)
def test_logits_and_gradients_are_those_of_all_tokens(case: str, real: torch.Tensor | None) -> None:
    model = random_model(CASES[case]).train()
    assert model.pools_one_token
    every, expected = results(model, padding_mask=real)
    one, found = results(model, padding_mask=real, pooled_only=True)
    assert every.hidden.shape[1] == 7 and one.hidden.shape[1] == 1
    torch.testing.assert_close(one.logits, every.logits, rtol=1e-4, atol=1e-5)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("case", WHOLE)
def test_other_models_compute_every_token(case: str) -> None:
    model = random_model(WHOLE[case])
    assert not model.pools_one_token
    assert model(IDS, pooled_only=True).hidden.shape[1] == 7
