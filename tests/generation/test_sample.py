"""Sampling and streaming: the model's distribution, seeds, and tokens as they are chosen."""

from dataclasses import replace

import pytest
import torch
from scipy import stats
from support.writers import tiny_decoder

from headway.generation import GenerationSettings, generate

PROMPT = [5, 9, 11]
SAMPLES = GenerationSettings(max_new_tokens=6, temperature=1.0, seed=1)


def test_samples_follow_the_models_distribution(gpt2):
    """Over many seeds of requests and over many samples of one: both must be independent draws."""
    with torch.no_grad():
        want = gpt2.model(torch.tensor([PROMPT])).logits[0, -1].softmax(-1) * 2000
    chosen = replace(SAMPLES, max_new_tokens=1)
    requests = [a[0].ids[0] for a in generate(gpt2.model, [PROMPT] * 2000, chosen)]
    samples = [h.ids[0] for _ in range(2) for h in generate(gpt2.model, [PROMPT], replace(chosen, n=1000, seed=_))[0]]
    common = want > 5
    for drawn in (requests, samples):
        seen = torch.bincount(torch.tensor(drawn), minlength=40).double()
        both = [torch.cat([x[common], x[~common].sum()[None]]).tolist() for x in (seen, want.double())]
        both[1] = [x * 2000 / sum(both[1]) for x in both[1]]
        assert stats.chisquare(*both).pvalue > 0.01
        hot = ((want / 2000).log() / 1.5).softmax(-1).double() * 2000  # control: another temperature
        flat = torch.cat([hot[common], hot[~common].sum()[None]])
        assert stats.chisquare(both[0], (flat * 2000 / flat.sum()).tolist()).pvalue < 1e-6


def test_second_tokens_do_not_depend_on_the_first_ones_number():
    """The numbers of one answer are independent of each other, and of its neighbours'."""
    from headway.generation.sample import SAMPLE_STRIDE, UniformStream

    streams = [UniformStream(1 + i + SAMPLE_STRIDE * j) for i in range(200) for j in range(5)]
    numbers = torch.tensor([[stream.next() for _ in range(2)] for stream in streams], dtype=torch.float64)
    assert len(numbers.unique()) == numbers.numel()
    for a, b in [(numbers[:, 0], numbers[:, 1]), (numbers[:-1, 0], numbers[1:, 0]), (numbers[:-5, 0], numbers[5:, 0])]:
        assert abs(stats.pearsonr(a, b).statistic) < 0.1
    assert stats.kstest(numbers.flatten(), "uniform").pvalue > 0.01


def test_random_numbers_are_those_of_one_generator():
    """Answers to a seed stay the same: the numbers are torch.rand of a generator with that seed, however many at
    once."""
    from headway.generation.sample import BLOCK, UniformStream

    stream = UniformStream(7)
    want = torch.rand(3 * BLOCK, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    assert [stream.next() for _ in range(3 * BLOCK)] == want.tolist()


def test_a_seed_repeats_and_another_does_not(gpt2):
    first, again = (generate(gpt2.model, [PROMPT] * 3, SAMPLES) for _ in range(2))
    assert first == again
    assert len({tuple(a[0].ids) for a in first}) == 3, "requests of one call have seeds of their own"
    assert generate(gpt2.model, [PROMPT] * 3, replace(SAMPLES, seed=50)) != first
    assert [a[0].ids for a in generate(gpt2.model, [PROMPT] * 2, replace(SAMPLES, seed=2))] == [
        a[0].ids for a in first[1:]
    ]
    unseeded = replace(SAMPLES, seed=None)
    assert generate(gpt2.model, [PROMPT] * 3, unseeded) != generate(gpt2.model, [PROMPT] * 3, unseeded)


def test_more_samples_or_more_tokens_go_on_from_the_same(gpt2):
    [[one]] = generate(gpt2.model, [PROMPT], SAMPLES)
    [three] = generate(gpt2.model, [PROMPT], replace(SAMPLES, n=3))
    assert three[0].ids == one.ids and len({tuple(h.ids) for h in three}) == 3
    [[longer]] = generate(gpt2.model, [PROMPT], replace(SAMPLES, max_new_tokens=30))
    assert longer.ids[:6] == one.ids


def test_the_global_random_state_is_unchanged(gpt2):
    before = torch.get_rng_state()
    generate(gpt2.model, [PROMPT], SAMPLES)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("more", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"temperature": 1e-4}])
def test_the_narrowest_samples_are_greedy(gpt2, more):
    greedy = generate(gpt2.model, [PROMPT], GenerationSettings(max_new_tokens=6))[0][0].ids
    assert generate(gpt2.model, [PROMPT], replace(SAMPLES, **more))[0][0].ids == greedy
    assert generate(gpt2.model, [PROMPT], SAMPLES)[0][0].ids != greedy


# ---------------------------------------------------------------------------------------- streaming


@pytest.fixture(scope="module")
def decoder(tokenizer):
    return tiny_decoder(len(tokenizer))


def test_tokens_stream_as_they_are_chosen(decoder, tokenizer):
    chosen = GenerationSettings(max_new_tokens=12, temperature=1.0, seed=3, n=2, eos_ids=(8, 9, 10), logprobs=True)
    events = []
    answers = generate(decoder, [[5], [6, 7]], chosen, tokenizer=tokenizer, on_token=events.append)
    for i, answer in enumerate(answers):
        for j, hypothesis in enumerate(answer):
            mine = [event for event in events if (event.request, event.sample) == (i, j)]
            assert [event.id for event in mine] == hypothesis.ids
            assert [event.logprob for event in mine] == hypothesis.logprobs
            assert "".join(event.text for event in mine) == hypothesis.text
            assert [event.finished_by for event in mine] == [None] * (len(mine) - 1) + [hypothesis.finished_by]
            ended = hypothesis.finished_by == "eos"
            assert hypothesis.text == tokenizer.decode(hypothesis.ids[:-1] if ended else hypothesis.ids)


def test_a_stop_string_ends_a_greedy_answer(decoder, tokenizer):
    free = GenerationSettings(max_new_tokens=20)
    [[whole]] = generate(decoder, [[5]], free, tokenizer=tokenizer)
    stop = whole.text[7:10]  # three tokens
    events = []
    [[cut]] = generate(decoder, [[5]], replace(free, stop=(stop,)), tokenizer=tokenizer, on_token=events.append)
    at = whole.text.find(stop)
    assert cut.finished_by == "stop" and cut.text == whole.text[:at] == "".join(event.text for event in events)
    assert cut.ids == whole.ids[: len(cut.ids)] and tokenizer.decode(cut.ids) == cut.text + stop


def test_stop_strings_end_beams(decoder, tokenizer):
    free = GenerationSettings(max_new_tokens=20, beams=3, n=3)
    [answer] = generate(decoder, [[5]], free, tokenizer=tokenizer)
    stop = answer[0].text[3:5]
    [answer] = generate(decoder, [[5]], replace(free, stop=(stop,)), tokenizer=tokenizer)
    assert any(h.finished_by == "stop" for h in answer)
    for hypothesis in answer:
        assert stop not in hypothesis.text
        whole = tokenizer.decode(hypothesis.ids)
        assert whole == hypothesis.text + (stop if hypothesis.finished_by == "stop" else "")


def test_text_of_beams_and_greedy_is_decoded_alike(decoder, tokenizer):
    for chosen in (GenerationSettings(max_new_tokens=9), GenerationSettings(max_new_tokens=9, beams=2)):
        settings = replace(chosen, prefix=(10, 11), eos_ids=(2,))
        [[hypothesis]] = generate(decoder, [[5]], settings, tokenizer=tokenizer)
        assert hypothesis.text == tokenizer.decode(hypothesis.ids)
        assert generate(decoder, [[5]], settings)[0][0].text is None
