"""A text longer than the context: what is visible of it, and every choice is that of a fresh prefill of this."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.writers import tiny_decoder

from headway.errors import ConfigError, InputError
from headway.generation import GenerationSettings, generate
from headway.generation.attention_sinks import dropped, sinks, visible

WINDOW = GenerationSettings(max_new_tokens=70, overflow="window")  # the models here have contexts of 64 and 32


def by_hand(model, prompt: list[int], count: int) -> list[int]:
    """The definition, without a cache: each token is the best after the first four and the last of the text."""
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            ids.append(int(model(torch.tensor([visible(ids, model.config.context)])).logits[0, -1].argmax()))
    return ids[len(prompt) :]


@given(st.integers(1, 300), st.integers(1, 70))
def test_the_first_and_the_last_tokens_are_visible(length, context):
    ids = list(range(length))
    shown = visible(ids, context)
    first = sinks(context)
    assert 1 <= len(shown) <= context
    assert shown[:first] == ids[:first] and shown[-1] == ids[-1]
    assert shown[first:] == ids[len(ids) - len(shown[first:]) :]
    assert length > context or shown == ids
    assert length <= context or len(shown) > context // 2, "more than half of the context is in use"
    assert dropped(length + 1, context) >= dropped(length, context)


def test_where_it_is_cut():
    """A context of 64: four sinks, and 30 tokens are dropped whenever it is full."""
    assert [dropped(n, 64) for n in (64, 65, 94, 95, 124, 125)] == [0, 30, 30, 60, 60, 90]


@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "qwen3"])
@pytest.mark.parametrize("length", [3, 64, 65, 150])
def test_greedy_is_the_plain_recomputation(pair_of, family, length):
    model = pair_of(family).model
    prompt = torch.randint(0, 40, (length,)).tolist()
    [[answer]] = generate(model, [prompt], WINDOW)
    assert answer.ids == by_hand(model, prompt, 70)


def test_a_batch_equals_single_requests(llama):
    prompts = [torch.randint(0, 40, (n,)).tolist() for n in (5, 40, 63, 64, 130)]
    for more in ({}, {"beams": 3, "n": 3}, {"temperature": 1.0, "seed": 1}):
        chosen = GenerationSettings(max_new_tokens=40, overflow="window", eos_ids=(8,), **more)
        together = generate(llama.model, prompts, chosen)
        for i, prompt in enumerate(prompts):
            settings = chosen if chosen.seed is None else GenerationSettings(**{**vars(chosen), "seed": 1 + i})
            [single] = generate(llama.model, [prompt], settings)
            assert [h.ids for h in single] == [h.ids for h in together[i]]


def test_an_encoder_decoder_drops_answer_tokens_but_no_source(translator):
    chosen = GenerationSettings(max_new_tokens=60, overflow="window")
    for source in ([4, 5, 6], [7, 8]):
        [[answer]] = generate(translator, [[1]], chosen, sources=[source])
        ids = [1]
        with torch.no_grad():
            for _ in range(60):
                shown = torch.tensor([visible(ids, 32)])
                ids.append(int(translator(torch.tensor([source]), decoder_ids=shown).logits[0, -1].argmax()))
        assert answer.ids == ids[1:]


def test_a_text_that_fits_is_unchanged(gpt2):
    [[fits]], [[windowed]] = (
        generate(gpt2.model, [[3, 4]], GenerationSettings(max_new_tokens=20, overflow=overflow))
        for overflow in ("error", "window")
    )
    assert fits.ids == windowed.ids and fits.score == pytest.approx(windowed.score, abs=1e-5)


def test_without_the_option_it_is_an_error(gpt2):
    with pytest.raises(InputError, match="overflow 'window'"):
        generate(gpt2.model, [[1] * 60], GenerationSettings(max_new_tokens=6))
    with pytest.raises(ConfigError, match="overflow is 'truncate'"):
        GenerationSettings(overflow="truncate")


def test_a_model_without_a_limit_has_no_window():
    model = tiny_decoder(12, context=None)
    plain, windowed = (GenerationSettings(max_new_tokens=30, overflow=overflow) for overflow in ("error", "window"))
    assert generate(model, [[1]], plain) == generate(model, [[1]], windowed)


def test_control_the_window_changes_the_answer(gpt2):
    """Without sinks, or with another stride, the answers would be others: the definition is what is tested."""
    prompt = torch.randint(0, 40, (90,)).tolist()
    [[answer]] = generate(gpt2.model, [prompt], GenerationSettings(max_new_tokens=10, overflow="window"))
    ids = list(prompt)
    with torch.no_grad():
        for _ in range(10):
            ids.append(int(gpt2.model(torch.tensor([ids[-len(visible(ids, 64)) :]])).logits[0, -1].argmax()))
    assert answer.ids != ids[90:]
