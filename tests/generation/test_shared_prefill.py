"""Prompts with a common beginning: it is prefilled once, and every answer is that of a single request."""

from dataclasses import replace

import pytest
import torch
from support.searches import MODES, Counted, ids_of

from headway.generation import generate
from headway.generation.prefill import SHARED

BEGIN = [3 + i % 29 for i in range(SHARED + 4)]
PROMPTS = [[*BEGIN, *rest] for rest in ([5, 9, 11], [7], [21, 22, 23, 24, 25, 26], [3, 3])]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["gpt2", "llama", "mistral", "qwen3"])
def test_prefilled_once_and_answered_as_a_single_request(pair_of, family, mode):
    model, chosen = Counted(pair_of(family).model), MODES[mode]
    together = generate(model, PROMPTS, chosen)
    assert model.shapes[:2] == [(1, len(BEGIN)), (4, 6)], "the beginning once, then the rest of each"
    seeds = [None if chosen.seed is None else chosen.seed + i for i in range(len(PROMPTS))]
    single = [generate(model, [p], replace(chosen, seed=seed))[0] for p, seed in zip(PROMPTS, seeds, strict=True)]
    assert ids_of(together) == ids_of(single)
    for got, want in zip(together, single, strict=True):
        assert [h.score for h in got] == pytest.approx([h.score for h in want], abs=1e-4)


def test_the_same_prompt_many_times(llama):
    model = Counted(llama.model)
    found = generate(model, [BEGIN] * 3, MODES["greedy"])
    assert model.shapes[:2] == [(1, len(BEGIN) - 1), (3, 1)]
    assert ids_of(found) == ids_of(generate(llama.model, [BEGIN], MODES["greedy"])) * 3


def test_not_where_little_is_shared_or_padding_costs_more(llama):
    model = Counted(llama.model)
    generate(model, [prompt[len(BEGIN) - SHARED + 1 :] for prompt in PROMPTS], MODES["greedy"])
    assert model.shapes[0] == (4, SHARED - 1 + 6)
    model.shapes.clear()
    long = [[*BEGIN, *range(3, 39)], [*BEGIN, 4]]  # 20 tokens shared, 36 and 1 after them
    together = generate(model, long, replace(MODES["greedy"], max_new_tokens=4))
    assert model.shapes[:2] == [(1, 56), (1, 21)]
    single = [generate(model, [prompt], replace(MODES["greedy"], max_new_tokens=4))[0] for prompt in long]
    assert ids_of(together) == ids_of(single)


@torch.no_grad()
def test_scores_are_those_of_one_pass(llama):
    for prompt, [said] in zip(PROMPTS, generate(llama.model, PROMPTS, MODES["greedy"]), strict=True):
        whole = torch.tensor([[*prompt, *said.ids]])
        own = llama.model(whole).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
        wanted = own.gather(1, whole[0, len(prompt) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(said.logprobs), wanted, atol=2e-5, rtol=0)
