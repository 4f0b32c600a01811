"""Search: each answer is the same alone as in any company (TRUST 38), and the same with a memory as without (41); what
comes later changes nothing before it (40)."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.searches import GREEDY, MODES, PROMPTS, SOURCES, Recomputed, ids_of
from support.writers import READERS, WRITERS

from headway.engine import release
from headway.generation import generate

DECODERS = [name for name in WRITERS if name not in READERS]
REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 39), min_size=1, max_size=9), st.integers(0, 2**40)), min_size=1, max_size=5
)


@pytest.mark.parametrize("mode", MODES)
@given(requests=REQUESTS, data=st.data())
@settings(max_examples=10, deadline=None)
def test_trust_38_any_order_and_company_gives_the_same_tokens(llama, mode, requests, data):
    """Every request has its seed and its answer; in another order, with others left out, it gets the same again."""

    def answers(asked):
        seeds = tuple(seed for _, seed in asked) if MODES[mode].temperature else None
        return generate(llama.model, [prompt for prompt, _ in asked], replace(MODES[mode], seed=seeds))

    alone = [answers([request])[0] for request in requests]
    places = data.draw(st.permutations(range(len(requests))))
    places = places[: data.draw(st.integers(1, len(places)))]
    for place, got in zip(places, answers([requests[place] for place in places]), strict=True):
        assert [h.ids for h in got] == [h.ids for h in alone[place]]
        assert [h.score for h in got] == pytest.approx([h.score for h in alone[place]], abs=1e-4)
        assert [h.finished_by for h in got] == [h.finished_by for h in alone[place]]


def test_one_seed_is_the_first_of_a_row_of_them(llama):
    many = generate(llama.model, PROMPTS, replace(MODES["samples"], seed=5))
    assert ids_of(many) == ids_of(generate(llama.model, PROMPTS, replace(MODES["samples"], seed=(5, 6, 7, 8))))
    assert ids_of(many) != ids_of(generate(llama.model, PROMPTS, replace(MODES["samples"], seed=(5, 6, 7, 9))))


@pytest.mark.parametrize("family", READERS)
@pytest.mark.parametrize("mode", MODES)
def test_trust_38_sources_of_any_length_change_nothing_for_each_other(pair_of, family, mode):
    model = pair_of(family).model
    start, chosen = model.config.start_id, MODES[mode]
    together = generate(model, [[start]] * len(SOURCES), chosen, sources=SOURCES)
    assert len({str(h.ids) for answer in together for h in answer}) > 1
    for i, (source, answer) in enumerate(zip(SOURCES, together, strict=True)):
        seed = None if chosen.seed is None else chosen.seed + i
        [alone] = generate(model, [[start]], replace(chosen, seed=seed), sources=[source])
        assert [h.ids for h in alone] == [h.ids for h in answer]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_trust_41_cached_is_recomputed(request, family, mode):
    model = request.getfixturevalue(family).model
    assert ids_of(generate(model, PROMPTS, MODES[mode])) == ids_of(generate(Recomputed(model), PROMPTS, MODES[mode]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "double"])
@pytest.mark.parametrize("family", DECODERS)
def test_trust_41_logits_are_those_of_one_reading(pair_of, family, dtype):
    """Step by step, in chunks, with padding left and right, in a batch and alone: in float32 to 1e-5 of the largest
    score, which is about 8 in these models. What is left is rounding alone: in float64 it is gone."""
    model, length = pair_of(family).model, 12
    if dtype == torch.float64:
        model = release(copy.deepcopy(model)).double()
    ids = torch.randint(0, 40, (3, length))
    lengths = torch.tensor([12, 7, 4])[:, None]
    with torch.no_grad():
        alone = [model(row[:n][None]).logits[0] for row, n in zip(ids, lengths.flatten().tolist(), strict=True)]
        right = model(ids, padding_mask=torch.arange(length)[None] < lengths).logits
        shifted = torch.stack([row.roll(length - int(n)) for row, n in zip(ids, lengths, strict=True)])
        left_mask = torch.arange(length)[None] >= length - lengths
        left = model(shifted, padding_mask=left_mask).logits
        pieces = []
        for chunk in (1, 5):
            cache = model.new_cache()
            logits = [
                model.step(shifted[:, at : at + chunk], cache, mask=left_mask[:, at : at + chunk], last=False)
                for at in range(0, length, chunk)
            ]
            pieces.append(torch.cat(logits, 1))
    for row, want in enumerate(alone):
        n = len(want)
        for got in (right[row, :n], left[row, length - n :], *(piece[row, length - n :] for piece in pieces)):
            assert (got - want).abs().max() <= (1e-5 if dtype == torch.float32 else 1e-13) * want.abs().max()


@pytest.mark.parametrize("family", DECODERS)
def test_trust_40_the_future_changes_nothing(pair_of, family):
    """By perturbation, and by gradient: exactly zero."""
    model = pair_of(family).model
    ids = torch.randint(0, 40, (1, 10))
    other = ids.clone()
    other[0, 6:] = (ids[0, 6:] + 7) % 40
    with torch.no_grad():
        a, b = model(ids).logits, model(other).logits
    assert torch.equal(a[:, :6], b[:, :6])
    assert not torch.equal(a[:, 6:], b[:, 6:]), "control: the change was seen"
    heard = []
    handle = model.embedding.register_forward_hook(lambda *given: heard.append(given[2].requires_grad_()) or given[2])
    try:
        logits = model(ids).logits
    finally:
        handle.remove()
    [gradient] = torch.autograd.grad(logits[0, 5].sum(), heard)
    assert torch.count_nonzero(gradient[0, 6:]) == 0
    assert torch.count_nonzero(gradient[0, 5]) > 0, "control: it sees itself"


def test_rows_that_stay_in_place_are_not_copied(gpt2, monkeypatch):
    selected = []
    make = gpt2.model.new_cache

    def watched(*, capacity=0):
        cache = make(capacity=capacity)
        select = cache.select
        cache.select = lambda rows: (selected.append(rows.tolist()), select(rows))
        return cache

    monkeypatch.setattr(gpt2.model, "new_cache", watched)
    generate(gpt2.model, PROMPTS, replace(GREEDY, eos_ids=()))
    assert selected == []
    answers = generate(gpt2.model, PROMPTS, GREEDY)
    ends = {len(a[0].ids) for a in answers if len(a[0].ids) < GREEDY.max_new_tokens}
    assert len(selected) == len(ends) > 0  # once for each step at which rows left


@pytest.mark.parametrize("family", DECODERS)
def test_a_prompt_read_in_parts_is_read_as_it_would_be_whole(pair_of, family, monkeypatch):
    model = pair_of(family).model
    whole = generate(model, PROMPTS, GREEDY)
    widths = []
    step = type(model).step

    def watched(ids, cache, **options):
        widths.append(ids.shape[1])
        return step(model, ids, cache, **options)

    monkeypatch.setattr("headway.generation.prompts.PART", 3)
    monkeypatch.setattr(model, "step", watched)
    parts = generate(model, PROMPTS, replace(GREEDY, speculate=False))
    assert ids_of(parts) == ids_of(whole)
    assert [h.score for [h] in parts] == pytest.approx([h.score for [h] in whole], abs=1e-5)
    assert max(widths) <= 3 < max(map(len, PROMPTS))


def test_prompts_of_very_different_lengths_are_read_with_little_padding(llama, monkeypatch):
    prompts = [[1 + (7 * i + n) % 38 for i in range(n)] for n in (2, 17, 16, 4, 5)]
    alone = [generate(llama.model, [prompt], GREEDY)[0][0].ids for prompt in prompts]
    seen = []
    step = type(llama.model).step

    def watched(ids, cache, **options):
        seen.append(tuple(ids.shape))
        return step(llama.model, ids, cache, **options)

    monkeypatch.setattr(llama.model, "step", watched)
    together = generate(llama.model, prompts, GREEDY)
    assert [h.ids for [h] in together] == alone
    assert seen[:4] == [(2, 17), (2, 5), (1, 2), (5, 1)]
