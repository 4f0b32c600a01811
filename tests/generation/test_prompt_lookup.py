"""Prompt lookup: the same tokens as without, in fewer steps where text repeats, and few proposals elsewhere."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.searches import Counted
from support.writers import tiny_decoder

import headway
from headway.generation import GenerationSettings, generate
from headway.generation.prompt_lookup import LONGEST_PAUSE, MOST, NgramIndex, PromptLookup, cost, is_exact
from headway.models.recurrent import RecurrentEncoderDecoder

LOOP = [5, 9, 11, 4, 7, 5, 9, 11, 4, 7, 5, 9, 11]
GREEDY = GenerationSettings(max_new_tokens=40)


class Copier(Counted):
    """Copies its prompt: after the prompt's tokens come the same again, with every `slip`-th one wrong."""

    def __init__(self, model, text: list[int], slip: int = 0):
        super().__init__(model)
        self.text, self.slip = text, slip

    def step(self, ids, cache, **options):
        logits = super().step(ids, cache, **options)
        end = cache.lengths[0]
        ends = range(end - ids.shape[1] + 1, end + 1) if options.get("every") else [end]
        wanted = [self._next(end) for end in ends]
        return logits.zero_().scatter_(-1, torch.tensor(wanted).view(*logits.shape[:-1], 1), 9.0)

    def _next(self, end: int) -> int:
        at = end - len(self.text)
        token = self.text[at % len(self.text)]
        return (token + 1) % 40 if self.slip and at % self.slip == self.slip - 1 else token


def both(model, prompt, chosen, **more):
    with_, without = (
        generate(model, [prompt], replace(chosen, speculate=speculate), **more)[0] for speculate in (True, False)
    )
    return with_, without


# ---------------------------------------------------------------------------------------- the same answers


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize(
    "chosen",
    [
        GREEDY,
        replace(GREEDY, eos_ids=(8, 30), logprobs=True),
        replace(GREEDY, repetition_penalty=1.3, no_repeat_ngram=4),
        replace(GREEDY, frequency_penalty=0.1, min_new_tokens=10, eos_ids=(8,)),
        replace(GREEDY, temperature=0.3, seed=3),
        replace(GREEDY, temperature=0.9, top_p=0.9, seed=5),
        replace(GREEDY, temperature=0.7, n=3, seed=2),
        replace(GREEDY, beams=3, n=2),
        replace(GREEDY, prefix=(5, 9)),
    ],
    ids=["greedy", "ended", "penalties", "minimum", "cool", "warm", "three samples", "beams", "prefix"],
)
def test_the_same_tokens_with_and_without(pair_of, family, chosen):
    model = pair_of(family).model
    for prompt in (LOOP, [7, 7, 7, 7, 7, 7], list(range(1, 20))):
        with_, without = both(model, prompt, chosen)
        assert [h.ids for h in with_] == [h.ids for h in without]
        assert [h.score for h in with_] == pytest.approx([h.score for h in without], abs=1e-4)
        assert [h.finished_by for h in with_] == [h.finished_by for h in without]


@pytest.mark.parametrize("family", ["t5", "marian"])
@pytest.mark.parametrize("temperature", [0.0, 0.5])
def test_encoder_decoders_too(pair_of, family, temperature):
    model = pair_of(family).model
    chosen = replace(GREEDY, temperature=temperature, seed=1)
    counted = Counted(model)
    with_, without = both(counted, [model.config.start_id], chosen, sources=[LOOP])
    assert with_[0].ids == without[0].ids


@settings(max_examples=30, deadline=None)
@given(
    prompt=st.lists(st.integers(0, 5), min_size=1, max_size=24),
    temperature=st.sampled_from([0.0, 0.2, 0.7]),
    seed=st.integers(0, 1000),
)
def test_the_same_tokens_for_any_prompt(prompt, temperature, seed):
    """A vocabulary of six, so that every n-gram has occurred before."""
    chosen = GenerationSettings(max_new_tokens=24, temperature=temperature, seed=seed)
    with_, without = both(MODEL, prompt, chosen)
    assert with_[0].ids == without[0].ids


MODEL = tiny_decoder(6)


def test_the_last_row_of_a_batch_speculates_and_stays_the_same(llama):
    """Requests of different length and different ends."""
    chosen = GenerationSettings(max_new_tokens=40, eos_ids=(8, 30, 12, 17))
    prompts = [LOOP, [7], [21, 22, 23, 24, 25, 26, 21, 22, 23]]
    counted = Counted(llama.model)
    together = generate(counted, prompts, chosen)
    single = [generate(llama.model, [prompt], replace(chosen, speculate=False))[0] for prompt in prompts]
    assert [t[0].ids for t in together] == [a[0].ids for a in single]
    assert len({len(t[0].ids) for t in together}) > 1, "control: they end at different times"


def test_streams_have_every_token_once(llama):
    streamed: list[int] = []
    copier = Copier(llama.model, LOOP)
    said = generate(copier, [LOOP], GREEDY, on_token=lambda token: streamed.append(token.id))[0][0]
    assert streamed == said.ids and len(streamed) == 40


# ---------------------------------------------------------------------------------------- in fewer steps


@pytest.mark.parametrize(("slip", "most"), [(0, 9), (16, 20)])
def test_copying_takes_few_steps(llama, slip, most):
    copier = Copier(llama.model, list(range(1, 21)), slip)
    with_, _ = both(copier, copier.text, GREEDY)
    steps = [tokens for _, tokens in copier.shapes]
    steps = steps[: steps.index(20, 1)]
    assert len(steps) < most, f"{len(steps)} steps for 40 tokens: {steps}"
    assert with_[0].ids[:10] == copier.text[:10]
    assert max(steps[1:]) <= MOST + 1


class Lengths:
    """A cache that holds nothing but a length."""

    lengths = (0,)

    def truncate(self, lengths):
        self.lengths = lengths


class Zeros:
    """A model whose logits are 0; counts the tokens that it is fed."""

    def __init__(self):
        self.fed: list[int] = []

    def step(self, ids, cache, *, every=False):
        self.fed.append(ids.shape[1])
        cache.lengths = [cache.lengths[0] + ids.shape[1]]
        return torch.zeros(1, ids.shape[1], 4) if every else torch.zeros(1, 4)


def test_where_proposals_fail_they_stop():
    """The same three tokens again and again, each time followed by something new."""
    text = [token for i in range(500) for token in (1, 2, 3, 4 + i)]
    model = Zeros()
    lookup = PromptLookup(model, Lengths(), ids=[], capacity=10**6, device=torch.device("cpu"))
    for token in text:
        lookup.step(token)
    vain = sum(count > 1 for count in model.fed)
    assert 5 < vain < 60, f"{vain} proposals in {len(model.fed)} steps"
    assert LONGEST_PAUSE * vain > len(model.fed) / 2, "control: it does go on trying"


def test_never_more_than_the_context_holds(llama):
    """The context is 64: a proposal must not reach past it."""
    prompt = (LOOP * 4)[:44]
    copier = Copier(llama.model, prompt)
    said = generate(copier, [prompt], GenerationSettings(max_new_tokens=21))[0][0]
    assert len(said.ids) == 21 and sum(tokens for _, tokens in copier.shapes) >= 44


# ---------------------------------------------------------------------------------------- proposals


def test_what_followed_last_time_is_proposed():
    index = NgramIndex([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3])
    assert index.propose(MOST) == [4, 5, 6, 7]
    assert index.propose(2) == [4, 5]
    index.push(4)
    assert index.propose(MOST) == [5, 6, 7, 8, 1, 2]
    assert NgramIndex([1, 2, 3, 4, 5]).propose(MOST) == []
    assert NgramIndex([1, 2]).propose(MOST) == []


def test_the_newest_match_counts():
    assert NgramIndex([1, 2, 3, 4, 1, 2, 3, 5, 6, 7, 1, 2, 3]).propose(3) == [5, 6, 7]


def test_a_repetition_is_continued():
    assert NgramIndex([1, 2] * 6).propose(9) == [1, 2, 1, 2, 1, 2, 1, 2, 1]
    assert NgramIndex([7] * 5).propose(4) == [7, 7, 7, 7]


def test_a_proposal_ends_where_a_text_ends():
    assert NgramIndex([1, 2, 3, 4, -1, 9, 1, 2, 3]).propose(MOST) == [4]


def test_the_cost_rises_with_the_proposal():
    assert cost(0) == 1 < cost(4) < cost(MOST) < MOST


# ---------------------------------------------------------------------------------------- when it is not exact


def test_only_where_it_is_exact(llama):
    cache = llama.model.new_cache(1)
    assert is_exact(llama.model, cache)
    assert not is_exact(headway.load(llama.folder, dtype="bfloat16").model, cache)
    assert not is_exact(llama.model, type("State", (), {"can_truncate": False})())
    scaled = type("Scaled", (Counted,), {"rotary_depends_on_length": True})(llama.model)
    assert not is_exact(scaled, cache)


def test_several_tokens_in_one_step_give_the_logits_of_single_steps(llama):
    """What speculation relies on: up to the last bits, so that only a tie could be decided differently."""
    model = llama.model
    ids = torch.tensor([LOOP])
    with torch.no_grad():
        one, many = model.new_cache(1), model.new_cache(1)
        single = torch.stack([model.step(ids[:, i : i + 1], one) for i in range(len(LOOP))], 1)
        whole = model.step(ids, many, every=True)
    difference = (single - whole).abs().max()
    assert difference < 1e-5 * whole.abs().max()
    margins = whole.topk(2).values
    assert (margins[..., 0] - margins[..., 1]).min() > 10 * difference, "control: no tie in this comparison"


def test_a_recurrent_model_does_not_speculate():
    from headway.layers.embeddings import EmbeddingConfig
    from headway.models.config import RecurrentConfig

    torch.manual_seed(0)
    model = RecurrentEncoderDecoder(RecurrentConfig(EmbeddingConfig(12, 8), 8, start_id=1)).eval()
    with_, without = both(model, [1], GenerationSettings(max_new_tokens=12), sources=[[3, 4, 5, 3, 4, 5]])
    assert with_[0].ids == without[0].ids
