"""Beams: n best, diverse groups, lengths, forced prefixes, log-probabilities and coverage."""

from dataclasses import replace

import pytest
import torch
from support.searches import BEAMS, MODES, PROMPTS, ids_of

from headway.generation import GenerationSettings, generate


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


def test_a_diversity_penalty_separates_the_groups(llama):
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
def test_a_forced_prefix_equals_a_longer_prompt(gpt2, beams):
    chosen = GenerationSettings(max_new_tokens=6, beams=beams, n=beams, eos_ids=(8,), logprobs=True)
    forced = generate(gpt2.model, PROMPTS, replace(chosen, prefix=(33, 12)))
    longer = generate(gpt2.model, [[*prompt, 33, 12] for prompt in PROMPTS], chosen)
    for a, b in zip(forced, longer, strict=True):
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


# ---------------------------------------------------------------------------------------- coverage


@pytest.mark.parametrize("beams", [2, 4])
def test_coverage_is_subtracted_from_finished_scores(translator, beams):
    """Σ log p / length + β Σ log min(attention on the source token, 1), by hand, from one pass."""
    from headway.inspect import record

    source, others = [4, 7, 9, 3], [[5], [6, 6, 8, 10, 11, 3]]
    plain = GenerationSettings(max_new_tokens=6, beams=beams, n=beams, eos_ids=(2,), early_stopping="never")
    chosen = replace(plain, coverage_penalty=0.4)
    answers = generate(translator, [[1]] * 3, chosen, sources=[others[0], source, others[1]])[1]
    last = f"decoder.stack.blocks.{len(translator.decoder.stack.blocks) - 1}.cross.weights"
    for answer in answers:
        shifted = torch.tensor([[1, *answer.ids[:-1]]])
        with torch.no_grad(), record(translator, last) as recorded:
            logits = translator(torch.tensor([source]), decoder_ids=shifted).logits[0]
        log_p = logits.log_softmax(-1).gather(1, torch.tensor(answer.ids)[:, None]).sum() / len(answer.ids)
        attention = recorded[last][-1][0].mean(0).sum(0)  # (source)
        assert answer.score == pytest.approx(float(log_p + 0.4 * attention.clamp(max=1).log().sum()), abs=1e-4)
    [single] = generate(translator, [[1]], chosen, sources=[source])
    assert [h.ids for h in single] == [h.ids for h in answers]
    before = generate(translator, [[1]], plain, sources=[source])[0]
    assert [h.score for h in before] != pytest.approx([h.score for h in answers]), "control: the penalty counts"


def test_coverage_removes_its_hook(translator):
    taps = [m for name, m in translator.named_modules() if name.endswith("cross.weights")]
    chosen = GenerationSettings(max_new_tokens=3, beams=2, coverage_penalty=0.4)
    generate(translator, [[1]], chosen, sources=[[4]])
    assert not any(tap.hooked for tap in taps)


def test_coverage_needs_a_source(gpt2):
    from headway.errors import InputError

    with pytest.raises(InputError, match="coverage_penalty needs a model with a source"):
        generate(gpt2.model, PROMPTS, GenerationSettings(beams=2, coverage_penalty=0.4))
