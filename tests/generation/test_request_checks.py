"""Requests that are refused, by name, and what happens when the model fails."""

import math

import pytest
import torch
from support.searches import GREEDY, PROMPTS
from support.writers import tiny_decoder

from headway.errors import HeadwayError, InputError
from headway.generation import GenerationSettings, generate


def test_context_overflow_names_both_numbers(gpt2):
    with pytest.raises(
        InputError, match=r"prompt 1 has 60 tokens.*max_new_tokens is 6.*context is 64 tokens, which leaves 5"
    ):
        generate(gpt2.model, [[1], [1] * 60], GenerationSettings(max_new_tokens=6))
    assert len(generate(gpt2.model, [[1] * 60], GenerationSettings(max_new_tokens=5))[0][0].ids) == 5
    with pytest.raises(InputError, match="61 tokens"):
        generate(gpt2.model, [[1] * 60], GenerationSettings(max_new_tokens=5, prefix=(3,)))


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ([[1], []], "prompt 1 is empty"),
        ([[1], [2, 40]], "prompt 1 contains id 40"),
        ([[-1]], "prompt 0 contains id -1"),
    ],
)
def test_invalid_prompts(gpt2, prompts, says):
    with pytest.raises(InputError, match=says):
        generate(gpt2.model, prompts, GREEDY)


def test_invalid_sources(gpt2, translator):
    chosen = GenerationSettings(max_new_tokens=3)
    with pytest.raises(InputError, match="takes no source"):
        generate(gpt2.model, [[1]], chosen, sources=[[1]])
    with pytest.raises(InputError, match="give sources"):
        generate(translator, [[1]], chosen)
    with pytest.raises(InputError, match="2 sources but 1 prompts"):
        generate(translator, [[1]], chosen, sources=[[1], [2]])
    with pytest.raises(InputError, match=r"source 0 has 33 tokens.*at most 32"):
        generate(translator, [[1]], chosen, sources=[[3] * 33])


def test_other_refusals(gpt2):
    with pytest.raises(InputError, match=r"settings\.stop"):
        generate(gpt2.model, [[1]], GenerationSettings(stop=("x",)))
    with pytest.raises(InputError, match="on_token"):
        generate(gpt2.model, [[1]], GenerationSettings(beams=2), on_token=print)
    gpt2.model.train()
    try:
        with pytest.raises(InputError, match="eval"):
            generate(gpt2.model, [[1]], GREEDY)
    finally:
        gpt2.model.eval()
    assert generate(gpt2.model, [], GREEDY) == []


@pytest.mark.parametrize("more", [{}, {"beams": 2}, {"temperature": 1.0}])
def test_an_answer_ends_when_no_token_is_left(more):
    model = tiny_decoder(5)
    chosen = GenerationSettings(max_new_tokens=10, no_repeat_ngram=1, **more)
    [[hypothesis]] = generate(model, [[0, 1]], chosen)
    assert sorted(hypothesis.ids) == [2, 3, 4]
    assert hypothesis.finished_by == "exhausted" and math.isfinite(hypothesis.score)


@pytest.mark.parametrize("more", [{}, {"beams": 2}, {"temperature": 1.0}])
def test_nan_logits_are_an_error(more):
    model = tiny_decoder(5)
    with torch.no_grad():
        model.stack.blocks[0].feedforward.down.weight.fill_(math.nan)
    with pytest.raises(HeadwayError, match="NaN"):
        generate(model, [[0, 1]], GenerationSettings(max_new_tokens=3, **more))


def test_a_model_that_has_generated_can_still_be_trained(llama):
    """Tables made during generation (rotary angles) work with gradients afterwards."""
    from headway.loading import load

    model = load(llama.folder).model
    generate(model, PROMPTS, GREEDY)
    model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
