"""Prompts with one common beginning: it is read once, and every answer is the one that its prompt gets alone."""

from dataclasses import replace

import pytest
import torch
from support.searches import MODES, ids_of

from headway.generation import generate
from headway.generation.prefill import SHARED

BEGIN = [3 + i % 29 for i in range(SHARED + 4)]
PROMPTS = [[*BEGIN, *rest] for rest in ([5, 9, 11], [7], [21, 22, 23, 24, 25, 26], [3, 3])]


class Counted:
    """A model that remembers the shapes of what it reads."""

    def __init__(self, model):
        self.model, self.config, self.training, self.parameters = model, model.config, False, model.parameters
        self.new_cache = model.new_cache
        self.read: list[tuple[int, int]] = []

    def step(self, ids, cache, *, mask=None, last=True):
        self.read.append(tuple(ids.shape))
        return self.model.step(ids, cache, mask=mask, last=last)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3"])
def test_read_once_and_answered_as_alone(pair_of, family, mode):
    model, chosen = Counted(pair_of(family).model), MODES[mode]
    together = generate(model, PROMPTS, chosen)
    assert model.read[:2] == [(1, len(BEGIN)), (4, 6)], "the beginning for all, then the rest of each"
    seeds = [None if chosen.seed is None else chosen.seed + i for i in range(len(PROMPTS))]
    alone = [generate(model, [p], replace(chosen, seed=seed))[0] for p, seed in zip(PROMPTS, seeds, strict=True)]
    assert ids_of(together) == ids_of(alone)
    for got, want in zip(together, alone, strict=True):
        assert [h.score for h in got] == pytest.approx([h.score for h in want], abs=1e-4)


def test_the_same_prompt_many_times(llama):
    model = Counted(llama.model)
    found = generate(model, [BEGIN] * 3, MODES["greedy"])
    assert model.read[:2] == [(1, len(BEGIN) - 1), (3, 1)]
    assert ids_of(found) == ids_of(generate(llama.model, [BEGIN], MODES["greedy"])) * 3


def test_not_where_places_count_or_little_is_shared(pair_of):
    """A sliding window counts places in the cache, padding included."""
    windowed, plain = Counted(pair_of("mistral").model), Counted(pair_of("llama").model)
    together = ids_of(generate(windowed, PROMPTS, MODES["greedy"]))
    assert windowed.read[0] == (4, len(BEGIN) + 6)
    assert together == [ids_of(generate(windowed, [prompt], MODES["greedy"]))[0] for prompt in PROMPTS]
    generate(plain, [prompt[len(BEGIN) - SHARED + 1 :] for prompt in PROMPTS], MODES["greedy"])
    assert plain.read[0] == (4, SHARED - 1 + 6)


@torch.no_grad()
def test_scores_are_those_of_one_reading(llama):
    for prompt, [said] in zip(PROMPTS, generate(llama.model, PROMPTS, MODES["greedy"]), strict=True):
        whole = torch.tensor([[*prompt, *said.ids]])
        own = llama.model(whole).logits.log_softmax(-1)[0, len(prompt) - 1 : -1]
        wanted = own.gather(1, whole[0, len(prompt) :, None])[:, 0]
        torch.testing.assert_close(torch.tensor(said.logprobs), wanted, atol=2e-5, rtol=0)
