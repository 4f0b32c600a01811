"""Gemma 3, OLMo 2, Phi-3, SmolLM3 and GPT-NeoX generate the ids of the reference library, with
float and int8 weights."""

from pathlib import Path
from typing import Any

import pytest
import torch

import headway
from headway.generation import GenerationSettings, generate

SIZES = dict(hidden_size=48, num_attention_heads=4, num_hidden_layers=4, vocab_size=60, intermediate_size=80,
             max_position_embeddings=64, pad_token_id=0, eos_token_id=1, bos_token_id=2,
             tie_word_embeddings=False)  # fmt: skip
MODELS: list[tuple[str, dict[str, Any]]] = [
    ("SmolLM3ForCausalLM", SIZES | dict(num_key_value_heads=2)),
    ("Olmo2ForCausalLM", SIZES),
    ("Phi3ForCausalLM", SIZES | dict(num_key_value_heads=2, sliding_window=6)),
    ("Gemma3ForCausalLM", SIZES | dict(num_key_value_heads=2, head_dim=16, sliding_window=6, query_pre_attn_scalar=16)),
    (
        "GPTNeoXForCausalLM",
        SIZES | dict(rope_parameters=dict(rope_type="default", partial_rotary_factor=0.5, rope_theta=1e4)),
    ),
]
PROMPT = [5, 9, 33, 7, 21, 8, 14, 50, 6, 11]


@pytest.mark.parametrize(("name", "config"), MODELS, ids=[name for name, _ in MODELS])
def test_ids_are_the_references(name: str, config: dict[str, Any], tmp_path: Path) -> None:
    import transformers

    torch.manual_seed(0)
    kind = getattr(transformers, name)
    theirs = kind(kind.config_class(**config)).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.4)
    theirs.save_pretrained(tmp_path / "model")
    expected = theirs.generate(torch.tensor([PROMPT]), max_new_tokens=16, do_sample=False)[0, len(PROMPT) :].tolist()
    settings = GenerationSettings(max_new_tokens=16, eos_ids=(1,))
    ours = headway.load(tmp_path / "model")
    batch = [PROMPT, [4, 3], PROMPT[:6]]
    together = [answer[0].ids for answer in generate(ours.model, batch, settings)]
    assert [token for token in together[0] if token != 1] == [token for token in expected if token != 1]
    assert len(set(expected)) > 2  # not one token again and again
    for prompt, ids in zip(batch, together, strict=True):
        assert generate(ours.model, [prompt], settings)[0][0].ids == ids
    small = headway.load(tmp_path / "model", weights="int8")
    assert len(generate(small.model, [PROMPT], settings)[0][0].ids) > 0
    small.save(tmp_path / "small")
    again = headway.load(tmp_path / "small")
    assert generate(again.model, [PROMPT], settings)[0][0].ids == generate(small.model, [PROMPT], settings)[0][0].ids
