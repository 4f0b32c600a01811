"""Each answer in a batch equals that of a single request (TRUST 38), with a cache and without (41); later tokens change
nothing before them (40)."""

import copy
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.searches import GREEDY, MODES, PROMPTS, SOURCES, Counted, Recomputed, ids_of
from support.writers import ENCODER_DECODERS, GENERATORS

from headway.engine import release
from headway.generation import generate
from headway.layers.rotary import RotaryScaling
from headway.models.build import build

DECODERS = [name for name in GENERATORS if name not in ENCODER_DECODERS]
REQUESTS = st.lists(
    st.tuples(st.lists(st.integers(0, 39), min_size=1, max_size=9), st.integers(0, 2**40)), min_size=1, max_size=5
)


@pytest.mark.parametrize("mode", MODES)
@given(requests=REQUESTS, data=st.data())
@settings(max_examples=10, deadline=None)
def test_trust_38_any_order_and_batch_gives_the_same_tokens(llama, mode, requests, data):
    """Every request has its seed and its answer; in another order, or without some others, the answer is the same."""

    def answers(chosen):
        seeds = tuple(seed for _, seed in chosen) if MODES[mode].temperature else None
        return generate(llama.model, [prompt for prompt, _ in chosen], replace(MODES[mode], seed=seeds))

    single = [answers([request])[0] for request in requests]
    places = data.draw(st.permutations(range(len(requests))))
    places = places[: data.draw(st.integers(1, len(places)))]
    for place, got in zip(places, answers([requests[place] for place in places]), strict=True):
        assert [h.ids for h in got] == [h.ids for h in single[place]]
        assert [h.score for h in got] == pytest.approx([h.score for h in single[place]], abs=1e-4)
        assert [h.finished_by for h in got] == [h.finished_by for h in single[place]]


def test_one_seed_is_the_first_of_a_row_of_them(llama):
    many = generate(llama.model, PROMPTS, replace(MODES["samples"], seed=5))
    assert ids_of(many) == ids_of(generate(llama.model, PROMPTS, replace(MODES["samples"], seed=(5, 6, 7, 8))))
    assert ids_of(many) != ids_of(generate(llama.model, PROMPTS, replace(MODES["samples"], seed=(5, 6, 7, 9))))


@pytest.mark.parametrize("family", ENCODER_DECODERS)
@pytest.mark.parametrize("mode", MODES)
def test_trust_38_sources_of_different_length_do_not_affect_each_other(pair_of, family, mode):
    model = pair_of(family).model
    start, chosen = model.config.start_id, MODES[mode]
    together = generate(model, [[start]] * len(SOURCES), chosen, sources=SOURCES)
    assert len({str(h.ids) for answer in together for h in answer}) > 1
    for i, (source, answer) in enumerate(zip(SOURCES, together, strict=True)):
        seed = None if chosen.seed is None else chosen.seed + i
        [single] = generate(model, [[start]], replace(chosen, seed=seed), sources=[source])
        assert [h.ids for h in single] == [h.ids for h in answer]


@pytest.mark.parametrize("mode", MODES)
def test_trust_38_rotary_angles_that_depend_on_the_length_of_a_row(llama, mode):
    """Prompts and answers on both sides of the length from which the angles change."""
    config, scaling = llama.model.config, RotaryScaling("dynamic", factor=4.0, original_length=5)
    attention = config.stack.block.attention
    attention = replace(attention, rotary=replace(attention.rotary, scaling=scaling))
    stack = replace(config.stack, block=replace(config.stack.block, attention=attention))
    model = build(replace(config, stack=stack)).eval()
    model.load_state_dict(llama.model.state_dict())
    assert model.rotary_depends_on_length
    together = generate(model, PROMPTS, MODES[mode])
    for i, (prompt, answer) in enumerate(zip(PROMPTS, together, strict=True)):
        seed = None if MODES[mode].seed is None else MODES[mode].seed + i
        [single] = generate(model, [prompt], replace(MODES[mode], seed=seed))
        assert [h.ids for h in single] == [h.ids for h in answer]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_trust_41_cached_is_recomputed(request, family, mode):
    model = request.getfixturevalue(family).model
    assert ids_of(generate(model, PROMPTS, MODES[mode])) == ids_of(generate(Recomputed(model), PROMPTS, MODES[mode]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["compiled", "double"])
@pytest.mark.parametrize("family", DECODERS)
def test_trust_41_logits_are_those_of_one_pass(pair_of, family, dtype):
    """Step by step and in chunks, in a batch with padding and in a single row: in float32 to 1e-5 of the largest score,
    which is about 8 in these models. The difference is rounding: in float64 it is gone."""
    model, length = pair_of(family).model, 12
    if dtype == torch.float64:
        model = release(copy.deepcopy(model)).double()
    ids, lengths = torch.randint(0, 40, (3, length)), [12, 7, 4]
    with torch.no_grad():
        single = [model(row[:n][None]).logits[0] for row, n in zip(ids, lengths, strict=True)]
        padding_mask = torch.arange(length)[None] < torch.tensor(lengths)[:, None]
        padded = model(ids, padding_mask=padding_mask).logits
        steps = []
        for chunk in (1, 3):  # 12, 7 and 4 tokens: rows leave the batch when they have no tokens left
            cache, rows, pieces = model.new_cache(3), [0, 1, 2], [[], [], []]
            for at in range(0, length, chunk):
                here = [min(chunk, lengths[row] - at) for row in rows]
                alive = [place for place, n in enumerate(here) if n > 0]
                if len(alive) < len(rows):
                    cache.select(alive)
                rows, here = [rows[place] for place in alive], [here[place] for place in alive]
                logits = model.step(ids[rows, at : at + chunk][:, : max(here)], cache, lengths=here, every=True)
                for row, n, got in zip(rows, here, logits, strict=True):
                    pieces[row].append(got[:n])
            steps.append([torch.cat(piece) for piece in pieces])
    for row, want in enumerate(single):
        for got in (padded[row, : len(want)], *(each[row] for each in steps)):
            assert (got - want).abs().max() <= (1e-5 if dtype == torch.float32 else 1e-13) * want.abs().max()


@pytest.mark.parametrize("family", DECODERS)
def test_trust_40_later_tokens_change_nothing(pair_of, family):
    """By perturbation, and by gradient: exactly zero."""
    model = pair_of(family).model
    ids = torch.randint(0, 40, (1, 10))
    other = ids.clone()
    other[0, 6:] = (ids[0, 6:] + 7) % 40
    with torch.no_grad():
        a, b = model(ids).logits, model(other).logits
    assert torch.equal(a[:, :6], b[:, :6])
    assert not torch.equal(a[:, 6:], b[:, 6:]), "control: the change was seen"
    embedded = []
    handle = model.embedding.sum.register_forward_hook(
        lambda *args: embedded.append(args[2].requires_grad_()) or args[2]
    )
    try:
        logits = model(ids).logits
    finally:
        handle.remove()
    [gradient] = torch.autograd.grad(logits[0, 5].sum(), embedded)
    assert torch.count_nonzero(gradient[0, 6:]) == 0
    assert torch.count_nonzero(gradient[0, 5]) > 0, "control: it sees itself"


def test_rows_that_stay_in_place_are_not_copied(gpt2, monkeypatch):
    selected = []
    make = gpt2.model.new_cache

    def watched(rows, *, capacity=0):
        cache = make(rows, capacity=capacity)
        select = cache.select
        cache.select = lambda rows: (selected.append(list(rows)), select(rows))
        return cache

    monkeypatch.setattr(gpt2.model, "new_cache", watched)
    generate(gpt2.model, PROMPTS, replace(GREEDY, eos_ids=()))
    assert selected == []
    answers = generate(gpt2.model, PROMPTS, GREEDY)
    ends = {len(a[0].ids) for a in answers if len(a[0].ids) < GREEDY.max_new_tokens}
    assert len(selected) == len(ends) > 0  # once for each step in which rows left


@pytest.mark.parametrize("family", DECODERS)
def test_a_prompt_prefilled_in_chunks_equals_one_pass(pair_of, family, monkeypatch):
    model = Counted(pair_of(family).model)
    whole = generate(model, PROMPTS, GREEDY)
    model.shapes.clear()
    monkeypatch.setattr("headway.generation.prefill.CHUNK", 3)
    chunks = generate(model, PROMPTS, replace(GREEDY, speculate=False))
    assert ids_of(chunks) == ids_of(whole)
    assert [h.score for [h] in chunks] == pytest.approx([h.score for [h] in whole], abs=1e-5)
    assert max(tokens for _, tokens in model.shapes) <= 3 < max(map(len, PROMPTS))


def test_prompts_of_very_different_lengths_are_prefilled_with_little_padding(llama):
    prompts = [[1 + (7 * i + n) % 38 for i in range(n)] for n in (2, 17, 16, 4, 5)]
    single = [generate(llama.model, [prompt], GREEDY)[0][0].ids for prompt in prompts]
    model = Counted(llama.model)
    together = generate(model, prompts, GREEDY)
    assert [h.ids for [h] in together] == single
    assert model.shapes[:4] == [(2, 17), (2, 5), (1, 2), (5, 1)]
