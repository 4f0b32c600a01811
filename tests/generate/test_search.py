"""Search: the reference library's ids, the exhaustive search's answer, and each answer the same alone as in company."""

import itertools
import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.writers import tiny_decoder

from headway.errors import HeadwayError, InputError
from headway.generate import GenerationSettings, generate

PROMPTS = [[5, 9, 11], [7], [21, 22, 23, 24, 25, 26], [3, 3]]


def reference(pair, prompt: list[int], chosen: GenerationSettings, **more) -> list[list[int]]:
    """The reference library's answers to one prompt, without padding."""
    with torch.no_grad():
        out = pair.reference.generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            num_beams=chosen.beams,
            num_return_sequences=chosen.n,
            max_new_tokens=chosen.max_new_tokens,
            min_new_tokens=chosen.min_new_tokens or None,
            length_penalty=chosen.length_penalty,
            early_stopping=chosen.early_stopping,
            repetition_penalty=float(chosen.repetition_penalty),
            no_repeat_ngram_size=chosen.no_repeat_ngram,
            eos_token_id=list(chosen.eos_ids) or None,
            pad_token_id=0,
            bad_words_ids=None,
            forced_eos_token_id=None,
            **more,
        )
    given = 1 if pair.reference.config.is_encoder_decoder else len(prompt)
    rows = out[:, given:].tolist()
    return [cut(row, chosen.eos_ids) for row in rows]


def cut(row: list[int], eos: tuple[int, ...]) -> list[int]:
    end = next((i + 1 for i, token in enumerate(row) if token in eos), len(row))
    return row[:end]


def ids_of(answers) -> list[list[list[int]]]:
    return [[h.ids for h in hypotheses] for hypotheses in answers]


GREEDY = GenerationSettings(max_new_tokens=16, eos_ids=(8, 30))
BEAMS = GenerationSettings(max_new_tokens=14, beams=4, n=4, eos_ids=(8, 30))


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize(
    "chosen",
    [
        GREEDY,
        replace(GREEDY, min_new_tokens=6),
        replace(GREEDY, repetition_penalty=1.7),
        replace(GREEDY, no_repeat_ngram=2),
        replace(GREEDY, repetition_penalty=1.2, no_repeat_ngram=3, min_new_tokens=4),
        BEAMS,
        replace(BEAMS, n=1, beams=2),
        replace(BEAMS, length_penalty=0.0),
        replace(BEAMS, length_penalty=2.5),
        replace(BEAMS, length_penalty=-1.0),
        replace(BEAMS, early_stopping=True),
        replace(BEAMS, early_stopping="never", length_penalty=1.5),
        replace(BEAMS, early_stopping="never", length_penalty=-0.5),
        replace(BEAMS, min_new_tokens=5, no_repeat_ngram=2, repetition_penalty=1.3),
        replace(BEAMS, eos_ids=()),
        replace(BEAMS, eos_ids=tuple(range(5, 30)), n=3),
    ],
    ids=lambda chosen: ",".join(f"{k}={v}" for k, v in vars(chosen).items() if v != getattr(GenerationSettings(), k)),
)
def test_same_ids_as_the_reference_in_a_ragged_batch(request, family, chosen):
    pair = request.getfixturevalue(family)
    ours = ids_of(generate(pair.model, PROMPTS, chosen))
    assert ours == [reference(pair, prompt, chosen) for prompt in PROMPTS]


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_the_comparison_sees_both_ways_to_end(request, family):
    """Control: answers of several lengths, ended by a token and by length, and beams that differ from greedy."""
    model = request.getfixturevalue(family).model
    beams = [h for answer in generate(model, PROMPTS, BEAMS) for h in answer]
    greedy = [h for answer in generate(model, PROMPTS, GREEDY) for h in answer]
    assert {h.finished_by for h in beams} == {"eos", "length"}
    assert len({len(h.ids) for h in beams}) > 2
    assert len({tuple(h.ids) for h in greedy}) > 2
    best = generate(model, PROMPTS, replace(BEAMS, n=1))
    assert any(a[0].ids[:4] != h.ids[:4] for a, h in zip(best, greedy, strict=True))


def test_beam_scores_are_the_references(llama):
    with torch.no_grad():
        out = llama.reference.generate(
            torch.tensor([PROMPTS[0]]), attention_mask=torch.ones(1, 3, dtype=torch.long), do_sample=False, num_beams=4,
            num_return_sequences=4, max_new_tokens=14, length_penalty=1.5, eos_token_id=[8, 30], pad_token_id=0,
            return_dict_in_generate=True, output_scores=True,
        )  # fmt: skip
    ours = generate(llama.model, PROMPTS, replace(BEAMS, length_penalty=1.5))[0]
    assert [h.score for h in ours] == pytest.approx(out.sequences_scores.tolist(), abs=1e-5)


SOURCES = [[5, 9, 11, 2], [7, 2], [21, 22, 23, 24, 25, 26, 2], [3, 3, 2]]


@pytest.mark.parametrize("family", ["t5", "marian"])
@pytest.mark.parametrize(
    "chosen",
    [
        GREEDY,
        replace(GREEDY, min_new_tokens=6, repetition_penalty=1.5),
        BEAMS,
        replace(BEAMS, length_penalty=0.6, early_stopping=True),
        replace(BEAMS, no_repeat_ngram=2, early_stopping="never"),
    ],
    ids=["greedy", "steered greedy", "beams", "early beams", "steered beams"],
)
def test_encoder_decoders_write_the_references_ids(request, family, chosen):
    pair = request.getfixturevalue(family)
    start = pair.model.config.start_id
    ours = ids_of(generate(pair.model, [[start]] * len(SOURCES), chosen, sources=SOURCES))
    theirs = [reference(pair, source, chosen, decoder_start_token_id=start) for source in SOURCES]
    assert ours == theirs
    assert len({str(answer) for answer in ours}) > 1, "control: the source matters"


# ---------------------------------------------------------------------------------------- exhaustive


@torch.no_grad()
def exhaustive(logits_of, vocab: int, *, eos: int, longest: int, penalty: float) -> list[tuple[float, list[int]]]:
    """Every sequence that ends with eos or at the longest length, best first."""
    found = []
    for length in range(1, longest + 1):
        bodies = itertools.product([t for t in range(vocab) if t != eos], repeat=length - 1)
        ids = torch.tensor([[*b, last] for b in bodies for last in (range(vocab) if length == longest else [eos])])
        sums = logits_of(ids).log_softmax(-1).gather(2, ids[..., None]).sum((1, 2))
        found += zip((sums / length**penalty).tolist(), ids.tolist(), strict=True)
    return sorted(found, key=lambda item: -item[0])


@pytest.mark.parametrize("penalty", [0.0, 1.0, 2.0, -1.0])
def test_wide_beams_find_what_an_exhaustive_search_finds(penalty):
    vocab, eos, prompt = 4, 2, [1, 3]
    model = tiny_decoder(vocab)

    def logits_of(ids):
        return model(torch.cat([torch.tensor([prompt] * len(ids)), ids], 1)).logits[:, len(prompt) - 1 : -1]

    want = exhaustive(logits_of, vocab, eos=eos, longest=4, penalty=penalty)[:10]
    chosen = GenerationSettings(max_new_tokens=4, beams=200, n=10, eos_ids=(eos,), length_penalty=penalty,
                                early_stopping="never")  # fmt: skip
    [got] = generate(model, [prompt], chosen)
    assert [h.ids for h in got] == [ids for _, ids in want]
    assert [h.score for h in got] == pytest.approx([score for score, _ in want], abs=1e-5)


def test_encoder_decoder_beams_find_what_an_exhaustive_search_finds(translator):
    source = [4, 7, 9]

    def logits_of(ids):
        shifted = torch.cat([torch.ones(len(ids), 1, dtype=torch.long), ids[:, :-1]], 1)
        return translator(torch.tensor([source] * len(ids)), decoder_ids=shifted).logits

    want = exhaustive(logits_of, 12, eos=2, longest=3, penalty=1.0)[:8]
    chosen = GenerationSettings(max_new_tokens=3, beams=300, n=8, eos_ids=(2,))
    others = [[3], source, [5, 5, 5, 5, 5]]
    got = generate(translator, [[1]] * 3, chosen, sources=others)[1]
    assert [h.ids for h in got] == [ids for _, ids in want]


# ---------------------------------------------------------------------------------------- alone = in company

MODES = {
    "greedy": GenerationSettings(max_new_tokens=10, eos_ids=(8, 30), repetition_penalty=1.3, no_repeat_ngram=3,
                                 presence_penalty=0.5, logprobs=True),
    "beams": GenerationSettings(max_new_tokens=8, beams=3, n=3, eos_ids=(8, 30), no_repeat_ngram=2, logprobs=True,
                                frequency_penalty=0.3),
    "diverse": GenerationSettings(max_new_tokens=8, beams=4, groups=2, diversity_penalty=1.0, n=4, eos_ids=(8, 30)),
    "samples": GenerationSettings(max_new_tokens=10, temperature=1.0, n=2, top_p=0.9, eos_ids=(8, 30), seed=5),
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@given(prompts=st.lists(st.lists(st.integers(0, 39), min_size=1, max_size=9), min_size=1, max_size=5))
@settings(max_examples=8, deadline=None)
def test_any_company_changes_nothing(llama, mode, prompts):
    chosen = MODES[mode]
    together = generate(llama.model, prompts, chosen)
    for i, prompt in enumerate(prompts):
        seed = None if chosen.seed is None else chosen.seed + i
        [alone] = generate(llama.model, [prompt], replace(chosen, seed=seed))
        assert [h.ids for h in alone] == [h.ids for h in together[i]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[i]], abs=1e-4)
        assert [h.finished_by for h in alone] == [h.finished_by for h in together[i]]


@pytest.mark.parametrize("beams", [1, 3])
def test_sources_of_any_length_change_nothing_for_each_other(translator, beams):
    chosen = GenerationSettings(max_new_tokens=8, beams=beams, n=beams, eos_ids=(2,))
    sources = [[4, 5, 6], [7], [8, 9, 10, 11, 3, 4, 5]]
    together = generate(translator, [[1]] * 3, chosen, sources=sources)
    assert len({tuple(answer[0].ids) for answer in together}) > 1
    for source, answer in zip(sources, together, strict=True):
        [alone] = generate(translator, [[1]], chosen, sources=[source])
        assert [h.ids for h in alone] == [h.ids for h in answer]


class Recomputed:
    """The same model without a memory: it keeps the ids and reads them all again at every step."""

    class Past:
        def __init__(self):
            self.ids = self.mask = None

        def select(self, rows):
            self.ids, self.mask = self.ids[rows], self.mask[rows]

    def __init__(self, model):
        self.model, self.config, self.training = model, model.config, False
        self.parameters = model.parameters

    def new_cache(self, *, capacity=0):
        return self.Past()

    def step(self, ids, cache, *, mask=None):
        mask = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        cache.ids = ids if cache.ids is None else torch.cat([cache.ids, ids], 1)
        cache.mask = mask if cache.mask is None else torch.cat([cache.mask, mask], 1)
        return self.model(cache.ids, mask=cache.mask).logits[:, -1]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_cached_is_recomputed(request, family, mode):
    model = request.getfixturevalue(family).model
    assert ids_of(generate(model, PROMPTS, MODES[mode])) == ids_of(generate(Recomputed(model), PROMPTS, MODES[mode]))


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


# ---------------------------------------------------------------------------------------- diverse, n best, lengths


def test_n_best_is_sorted_distinct_and_the_head_of_a_longer_list(llama):
    for answer in generate(llama.model, PROMPTS, BEAMS):
        assert [h.score for h in answer] == sorted((h.score for h in answer), reverse=True)
        assert len({tuple(h.ids) for h in answer}) == 4
    shorter = generate(llama.model, PROMPTS, replace(BEAMS, n=2))
    assert ids_of(shorter) == [answer[:2] for answer in ids_of(generate(llama.model, PROMPTS, BEAMS))]


def test_groups_without_penalty_are_beam_searches_side_by_side(llama):
    both = GenerationSettings(max_new_tokens=8, beams=4, groups=2, n=4, eos_ids=(8, 30))
    half = replace(both, beams=2, groups=1, n=2)
    for grouped, plain in zip(generate(llama.model, PROMPTS, both), generate(llama.model, PROMPTS, half), strict=True):
        assert [h.ids for h in grouped] == [ids for h in plain for ids in (h.ids, h.ids)]


def test_a_diversity_penalty_parts_the_groups(llama):
    """With groups of one beam and no ends: each group is greedy under the penalty for the tokens before it."""
    chosen = GenerationSettings(max_new_tokens=5, beams=3, groups=3, n=3, diversity_penalty=100.0)
    [answer] = generate(llama.model, [PROMPTS[0]], chosen)
    for tokens in zip(*(h.ids for h in answer), strict=True):
        assert len(set(tokens)) == 3
    greedy = generate(llama.model, [PROMPTS[0]], GenerationSettings(max_new_tokens=5))[0][0].ids
    assert greedy in [h.ids for h in answer]
    second = [*PROMPTS[0]]
    for step in range(5):  # the second group, by hand
        with torch.no_grad():
            log_p = llama.model(torch.tensor([second])).logits[0, -1]
        log_p[greedy[step]] -= 100.0
        second.append(int(log_p.argmax()))
    assert second[3:] in [h.ids for h in answer]


def test_lengths(gpt2):
    for beams in (1, 3):
        chosen = GenerationSettings(max_new_tokens=9, min_new_tokens=7, beams=beams, eos_ids=tuple(range(0, 40, 2)))
        free = generate(gpt2.model, PROMPTS, replace(chosen, min_new_tokens=0))
        assert all(len(answer[0].ids) < 7 for answer in free), free
        for answer in generate(gpt2.model, PROMPTS, chosen):
            assert 7 < len(answer[0].ids) <= 9
            assert not set(answer[0].ids[:7]) & set(chosen.eos_ids)


@pytest.mark.parametrize("beams", [1, 3])
def test_a_forced_prefix_is_as_if_it_stood_in_the_prompt(gpt2, beams):
    chosen = GenerationSettings(max_new_tokens=6, beams=beams, n=beams, eos_ids=(8,), logprobs=True)
    forced = generate(gpt2.model, PROMPTS, replace(chosen, prefix=(33, 12)))
    asked = generate(gpt2.model, [[*prompt, 33, 12] for prompt in PROMPTS], chosen)
    for a, b in zip(forced, asked, strict=True):
        assert [h.ids for h in a] == [[33, 12, *h.ids] for h in b]
        assert [h.logprobs for h in a] == [pytest.approx([0.0, 0.0, *h.logprobs], abs=1e-5) for h in b]
        assert [h.score for h in a] == pytest.approx([h.score for h in b], abs=1e-5)


@pytest.mark.parametrize("mode", ["greedy", "beams"])
def test_logprobs_are_the_models_own(gpt2, mode):
    for prompt, answer in zip(PROMPTS, generate(gpt2.model, PROMPTS, MODES[mode]), strict=True):
        for hypothesis in answer:
            with torch.no_grad():
                log_p = gpt2.model(torch.tensor([prompt + hypothesis.ids])).logits.log_softmax(-1)[0]
            want = log_p[len(prompt) - 1 : -1].gather(1, torch.tensor(hypothesis.ids)[:, None]).squeeze(1)
            assert hypothesis.logprobs == pytest.approx(want.tolist(), abs=1e-4)


# ---------------------------------------------------------------------------------------- refusals and faults


def test_context_overflow_names_both_numbers(gpt2):
    with pytest.raises(InputError, match=r"prompt 1 has 60 tokens.*max_new_tokens is 5.*65.*context is 64"):
        generate(gpt2.model, [[1], [1] * 60], GenerationSettings(max_new_tokens=5))
    assert len(generate(gpt2.model, [[1] * 60], GenerationSettings(max_new_tokens=4))[0][0].ids) == 4
    with pytest.raises(InputError, match="61 tokens"):
        generate(gpt2.model, [[1] * 60], GenerationSettings(max_new_tokens=4, prefix=(3,)))


@pytest.mark.parametrize(
    ("prompts", "says"),
    [
        ([[1], []], "prompt 1 is empty"),
        ([[1], [2, 40]], "prompt 1 contains id 40"),
        ([[-1]], "prompt 0 contains id -1"),
    ],
)
def test_prompts_that_cannot_be(gpt2, prompts, says):
    with pytest.raises(InputError, match=says):
        generate(gpt2.model, prompts, GREEDY)


def test_sources_that_cannot_be(gpt2, translator):
    chosen = GenerationSettings(max_new_tokens=3)
    with pytest.raises(InputError, match="reads no source"):
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
def test_nothing_left_to_choose_ends_the_answer(more):
    model = tiny_decoder(5)
    chosen = GenerationSettings(max_new_tokens=10, no_repeat_ngram=1, **more)
    [[hypothesis]] = generate(model, [[0, 1]], chosen)
    assert sorted(hypothesis.ids) == [2, 3, 4]
    assert hypothesis.finished_by == "exhausted" and math.isfinite(hypothesis.score)


@pytest.mark.parametrize("more", [{}, {"beams": 2}, {"temperature": 1.0}])
def test_scores_that_are_not_numbers_are_an_error(more):
    model = tiny_decoder(5)
    with torch.no_grad():
        model.stack.blocks[0].feedforward.down.weight.fill_(math.nan)
    with pytest.raises(HeadwayError, match="not numbers"):
        generate(model, [[0, 1]], GenerationSettings(max_new_tokens=3, **more))


def test_a_model_that_has_written_can_still_learn(llama):
    """Tables made while writing (rotary angles) must be usable with gradients afterwards."""
    from headway.bundle import load

    model = load(llama.folder).model
    generate(model, PROMPTS, GREEDY)
    model(torch.tensor([[1, 2, 3]])).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
