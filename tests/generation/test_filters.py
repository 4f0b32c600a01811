"""Filters against their formulas and against the reference library's processors."""

import math

import numpy as np
import pytest
import torch
from scipy import stats

from headway.generation.filters import (
    BadWords,
    CountPenalty,
    FilterRow,
    History,
    NoRepeatNgram,
    RepetitionPenalty,
    apply,
    score_filters,
)
from headway.generation.sampling_filters import MinP, Temperature, TopK, TopP, Typical, draw, sampling_filters
from headway.generation.settings import GenerationSettings

ROWS, VOCAB = 6, 50


@pytest.fixture
def scores() -> torch.Tensor:
    return torch.randn(ROWS, VOCAB) * torch.tensor([0.1, 0.5, 1.0, 2.0, 4.0, 8.0])[:, None]


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(0, 8, (ROWS, 20))


NONE = History([])


def history(ids: torch.Tensor, *, prompt: int = 0, new: int = 0) -> History:
    return History([FilterRow(row[row >= 0].numpy(), prompt, new, {}) for row in ids])


def filtered(scores: torch.Tensor, settings: GenerationSettings, seen: History) -> torch.Tensor:
    return apply(score_filters(settings), scores, seen)


def same(a: torch.Tensor, b: torch.Tensor) -> None:
    assert torch.equal(a.isinf(), b.isinf())
    torch.testing.assert_close(a, b)


def kept(scores: torch.Tensor) -> list[set[int]]:
    return [set(row.isfinite().nonzero().flatten().tolist()) for row in scores]


# ---------------------------------------------------------------------------------------- the reference's


@pytest.mark.parametrize("k", [1, 3, 49, 50, 1000])
def test_top_k(scores, k):
    from transformers import TopKLogitsWarper

    same(TopK(k)(scores, NONE), TopKLogitsWarper(k)(None, scores))
    assert kept(TopK(k)(scores, NONE)) == [set(row.topk(min(k, VOCAB)).indices.tolist()) for row in scores]


@pytest.mark.parametrize("p", [1e-9, 0.1, 0.5, 0.9, 0.999])
def test_top_p(scores, p):
    from transformers import TopPLogitsWarper

    same(TopP(p)(scores, NONE), TopPLogitsWarper(p)(None, scores))
    for row, stay in zip(scores.double().softmax(-1).tolist(), kept(TopP(p)(scores, NONE)), strict=True):
        order = sorted(range(VOCAB), key=lambda i: -row[i])
        want, mass = set(), 0.0
        for i in order:
            if mass >= p:
                break
            want.add(i)
            mass += row[i]
        assert stay == want


@pytest.mark.parametrize(("spread", "looks_at_all"), [(5.0, False), (0.1, True)])
def test_top_p_of_a_large_vocabulary(monkeypatch, spread, looks_at_all):
    from transformers import TopPLogitsWarper

    scores = torch.randn(3, 20_000) * spread
    want = TopPLogitsWarper(0.8)(None, scores)
    sort, sorted_at_all = torch.Tensor.sort, []
    monkeypatch.setattr(torch.Tensor, "sort", lambda *a, **k: (sorted_at_all.append(1), sort(*a, **k))[1])
    got = TopP(0.8)(scores, NONE)
    assert bool(sorted_at_all) == looks_at_all
    same(got, want)


@pytest.mark.parametrize("p", [0.01, 0.2, 0.9, 1.0])
def test_min_p(scores, p):
    from transformers import MinPLogitsWarper

    same(MinP(p)(scores, NONE), MinPLogitsWarper(p)(None, scores))
    for row, stay in zip(scores.softmax(-1), kept(MinP(p)(scores, NONE)), strict=True):
        assert stay == set((row >= p * row.max()).nonzero().flatten().tolist())


@pytest.mark.parametrize("mass", [0.05, 0.3, 0.8, 0.99])
def test_typical(scores, mass):
    from transformers import TypicalLogitsWarper

    same(Typical(mass)(scores, NONE), TypicalLogitsWarper(mass)(None, scores))
    for row, stay in zip(scores.double().softmax(-1).tolist(), kept(Typical(mass)(scores, NONE)), strict=True):
        entropy = -sum(p * math.log(p) for p in row)
        order = sorted(range(VOCAB), key=lambda i: abs(-math.log(row[i]) - entropy))
        want, total = set(), 0.0
        for i in order:
            if total >= mass:
                break
            want.add(i)
            total += row[i]
        assert stay == want


@pytest.mark.parametrize("penalty", [0.5, 1.3, 4.0])
def test_repetition(scores, ids, penalty):
    from transformers import RepetitionPenaltyLogitsProcessor

    same(RepetitionPenalty(penalty)(scores, history(ids)), RepetitionPenaltyLogitsProcessor(penalty)(ids, scores))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 20, 21, 30])
def test_no_repeat_ngram(scores, ids, size):
    from transformers import NoRepeatNGramLogitsProcessor

    got = NoRepeatNgram(size)(scores, history(ids))
    same(got, NoRepeatNGramLogitsProcessor(size)(ids, scores))
    if size == 2:
        assert got.isinf().any(), "control: nothing was there to forbid"


def test_sampling_filters_run_in_the_references_order(scores):
    from transformers import GenerationConfig, GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=4, n_head=1, n_layer=1, vocab_size=VOCAB))
    chosen = GenerationSettings(temperature=1.7, top_k=30, top_p=0.9, min_p=0.05, typical_p=0.8)
    config = GenerationConfig(do_sample=True, temperature=1.7, top_k=30, top_p=0.9, min_p=0.05, typical_p=0.8)
    config._eos_token_tensor = None
    processors = model._get_logits_processor(config, input_ids_seq_length=1, device="cpu")
    assert len(processors) == 5
    same(apply(sampling_filters(chosen), scores, NONE), processors(torch.zeros(ROWS, 1, dtype=torch.long), scores))


# ---------------------------------------------------------------------------------------- our own


def test_rows_of_different_length_are_independent(scores, ids):
    """Each filter that reads the ids gives a row in a batch what it gives the row alone."""
    rows = [FilterRow(ids[row, 3 * row :].numpy(), row, 0, {}) for row in range(ROWS)]
    for rule in (RepetitionPenalty(1.5), CountPenalty(0.3, 0.7), NoRepeatNgram(1), NoRepeatNgram(2), NoRepeatNgram(3)):
        together = rule(scores, History(rows))
        for row in range(ROWS):
            same(together[row : row + 1], rule(scores[row : row + 1], History(rows[row : row + 1])))


def test_history_is_padded_on_the_left_with_minus_one():
    seen = History([FilterRow(np.array([4, 9, 5]), 1, 2, {}), FilterRow(np.array([7, 7]), 2, 0, {})])
    assert seen.ids.tolist() == [[4, 9, 5], [-1, 7, 7]]
    assert seen.answers.tolist() == [[9, 5], [-1, -1]]


def test_frequency_and_presence(scores):
    got = CountPenalty(0.5, 2.0)(scores, history(torch.tensor([[4, 4, 4, 9, -1]] * ROWS)))
    want = scores.clone()
    want[:, 4] -= 3 * 0.5 + 2.0
    want[:, 9] -= 0.5 + 2.0
    torch.testing.assert_close(got, want)


def test_frequency_counts_the_answer_and_repetition_the_prompt_too(scores):
    seen = history(torch.tensor([[4, 9]] * ROWS), prompt=1, new=1)  # 4 is the prompt, 9 the answer
    counted = filtered(scores, GenerationSettings(presence_penalty=1.0), seen)
    assert (counted != scores).any(0).nonzero().flatten().tolist() == [9]
    repeated = filtered(scores, GenerationSettings(repetition_penalty=2.0), seen)
    assert (repeated != scores).any(0).nonzero().flatten().tolist() == [4, 9]


def test_ends_are_forbidden_until_the_minimum(scores):
    settings = GenerationSettings(min_new_tokens=3, eos_ids=(5,), stop_ids=(7, 10_000))
    rows = [FilterRow(np.zeros(4, dtype=np.int64), 2, new, {}) for new in (2, 3, 0, 7, 2, 3)]
    got = kept(filtered(scores, settings, History(rows)))
    every = set(range(VOCAB))
    assert got == [every - {5, 7} if row.new < 3 else every for row in rows]
    assert filtered(scores, settings, history(torch.zeros(ROWS, 4).long(), prompt=1, new=3)) is scores


def test_filters_do_not_change_their_input(scores, ids):
    before = scores.clone()
    settings = GenerationSettings(temperature=0.7, top_k=9, top_p=0.8, min_p=0.1, typical_p=0.9, repetition_penalty=2.0,
                                  frequency_penalty=1.0, no_repeat_ngram=2, min_new_tokens=3, eos_ids=(1,))  # fmt: skip
    seen = history(ids, prompt=3)
    out = apply(sampling_filters(settings), filtered(scores, settings, seen), seen)
    assert torch.equal(scores, before)
    assert all(row for row in kept(out)), "some token is always left"


def test_equal_settings_give_equal_filters():
    """Equal filters of several requests are applied in one call."""
    settings = {"repetition_penalty": 1.2, "bad_words": [[3, 4]], "temperature": 0.5, "top_p": 0.9}
    first, again = GenerationSettings(**settings), GenerationSettings(**settings, max_new_tokens=7)
    for collect in (score_filters, sampling_filters):
        assert collect(first) == collect(again) and len({collect(first), collect(again)}) == 1
    assert score_filters(first) != score_filters(GenerationSettings(repetition_penalty=1.3, bad_words=[[3, 4]]))
    assert sampling_filters(GenerationSettings(temperature=0.5)) == (Temperature(0.5),)
    assert score_filters(GenerationSettings(temperature=0.5, eos_ids=(3,))) == ()


# ---------------------------------------------------------------------------------------- drawing


def test_draws_follow_the_probabilities():
    scores = torch.tensor([[0.0, 1.0, -math.inf, 2.0, -1.0, -math.inf]])
    count = 20_000
    uniform = torch.rand(count, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    drawn = draw(scores.expand(count, -1), uniform)
    seen = torch.bincount(drawn, minlength=6).tolist()
    want = (scores.double().softmax(-1)[0] * count).tolist()
    assert seen[2] == seen[5] == 0
    live = [i for i in range(6) if want[i]]
    assert stats.chisquare([seen[i] for i in live], [want[i] for i in live]).pvalue > 0.01
    wrong = [want[i] for i in (1, 0, 3, 4)]  # control: two probabilities swapped
    assert stats.chisquare([seen[i] for i in live], wrong).pvalue < 1e-6


def test_the_ends_of_the_interval_draw_possible_tokens():
    scores = torch.tensor([[-math.inf, 0.3, 0.2, -math.inf]] * 2)
    assert draw(scores, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)).tolist() == [1, 2]


# ---------------------------------------------------------------------------------------- forced and suppressed tokens


def test_bad_words(scores, ids):
    from transformers import NoBadWordsLogitsProcessor

    words = [[3], [7], [ids[0, -1].item(), 9], [ids[1, -2].item(), ids[1, -1].item(), 11], [*range(30), 12]]
    want = NoBadWordsLogitsProcessor(words, eos_token_id=7)(ids, scores)
    same(BadWords(tuple(map(tuple, words)), (7,))(scores, history(ids)), want)
    assert want[0, 9] == -math.inf and want[1, 11] == -math.inf and want[0, 7] > -math.inf


def test_forced_and_suppressed_tokens_by_step(scores, ids):
    settings = GenerationSettings(
        max_new_tokens=4, forced_bos_id=5, forced_eos_ids=(7, 9), suppress_ids=(1,), begin_suppress_ids=(2,)
    )
    steps = [filtered(scores, settings, history(ids, prompt=1, new=new)) for new in range(4)]
    every = set(range(VOCAB))
    assert [kept(step) for step in steps] == [[s] * ROWS for s in ({5}, every - {1, 2}, every - {1}, {7, 9})]
    assert steps[0][:, 5].tolist() == [0.0] * ROWS and steps[3][:, [7, 9]].tolist() == [[0.0, 0.0]] * ROWS
