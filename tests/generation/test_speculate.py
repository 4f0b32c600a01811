"""Speculation: the same tokens as without, in fewer steps where text repeats itself, and hardly a guess elsewhere."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.writers import tiny_decoder

import headway
from headway.generation import GenerationSettings, generate
from headway.generation.prompt_lookup import LONGEST_PAUSE, MOST, Lookahead, Trail, exact, price
from headway.models.recurrent import RecurrentEncoderDecoder

LOOP = [5, 9, 11, 4, 7, 5, 9, 11, 4, 7, 5, 9, 11]
GREEDY = GenerationSettings(max_new_tokens=40)


class Counted:
    """A model that counts its steps and the tokens it reads in them."""

    def __init__(self, model):
        self.model, self.config, self.training, self.parameters = model, model.config, False, model.parameters
        self.read: list[int] = []
        if hasattr(model, "new_cache"):
            self.new_cache = model.new_cache
        else:
            self.start = model.start

    def step(self, ids, cache, *, mask=None, last=True):
        self.read.append(ids.shape[1])
        return self.model.step(ids, cache, mask=mask, last=last)


class Parrot(Counted):
    """Copies its prompt: after the prompt's tokens come the same again, with every `slip`-th one wrong."""

    def __init__(self, model, text: list[int], slip: int = 0):
        super().__init__(model)
        self.text, self.slip = text, slip

    def step(self, ids, cache, *, mask=None, last=True):
        logits = super().step(ids, cache, mask=mask, last=last)
        ends = (
            range(cache.length, cache.length + 1) if last else range(cache.length - ids.shape[1] + 1, cache.length + 1)
        )
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
    """A vocabulary of six, so that everything has been written before."""
    chosen = GenerationSettings(max_new_tokens=24, temperature=temperature, seed=seed)
    with_, without = both(MODEL, prompt, chosen)
    assert with_[0].ids == without[0].ids


MODEL = tiny_decoder(6)


def test_rows_that_are_left_alone_speculate_and_stay_the_same(llama):
    """Requests of different length: padding is in the cache when the last one starts to guess."""
    chosen = GenerationSettings(max_new_tokens=40, eos_ids=(8, 30, 12, 17))
    prompts = [LOOP, [7], [21, 22, 23, 24, 25, 26, 21, 22, 23]]
    counted = Counted(llama.model)
    together = generate(counted, prompts, chosen)
    alone = [generate(llama.model, [prompt], replace(chosen, speculate=False))[0] for prompt in prompts]
    assert [t[0].ids for t in together] == [a[0].ids for a in alone]
    assert len({len(t[0].ids) for t in together}) > 1, "control: they end at different times"


def test_streams_hear_every_token_once(llama):
    heard: list[int] = []
    parrot = Parrot(llama.model, LOOP)
    said = generate(parrot, [LOOP], GREEDY, on_token=lambda token: heard.append(token.id))[0][0]
    assert heard == said.ids and len(heard) == 40


# ---------------------------------------------------------------------------------------- in fewer steps


@pytest.mark.parametrize(("slip", "most"), [(0, 9), (16, 20)])
def test_copying_takes_few_steps(llama, slip, most):
    parrot = Parrot(llama.model, list(range(1, 21)), slip)
    with_, _ = both(parrot, parrot.text, GREEDY)
    steps = parrot.read[: parrot.read.index(20, 1)]
    assert len(steps) < most, f"{len(steps)} steps for 40 tokens: {steps}"
    assert with_[0].ids[:10] == parrot.text[:10]
    assert max(steps[1:]) <= MOST + 1


class Columns:
    """A cache that holds nothing but its length."""

    length = 0

    def select(self, rows):
        raise NotImplementedError

    def truncate(self, length):
        self.length = length


class Still:
    """A model that says nothing, and counts what it reads."""

    def __init__(self):
        self.read: list[int] = []

    def step(self, ids, cache, *, last=True):
        self.read.append(ids.shape[1])
        cache.length += ids.shape[1]
        return torch.zeros(1, 4) if last else torch.zeros(1, ids.shape[1], 4)


def test_where_guesses_fail_they_stop():
    """The same three tokens again and again, each time followed by something new."""
    text = [token for i in range(500) for token in (1, 2, 3, 4 + i)]
    model, cache = Still(), Columns()
    lookahead = Lookahead(model, cache, seen=[], room=10**6, device=torch.device("cpu"))
    for token in text:
        lookahead.step(token)
    vain = sum(count > 1 for count in model.read)
    assert 5 < vain < 60, f"{vain} guesses in {len(model.read)} steps"
    assert LONGEST_PAUSE * vain > len(model.read) / 2, "control: it does go on trying"


def test_never_more_than_there_is_room_for(llama):
    """The context is 64: a guess must not reach past it."""
    prompt = (LOOP * 4)[:44]
    parrot = Parrot(llama.model, prompt)
    said = generate(parrot, [prompt], GenerationSettings(max_new_tokens=21))[0][0]
    assert len(said.ids) == 21 and sum(parrot.read) >= 44


# ---------------------------------------------------------------------------------------- guessing


def test_what_followed_last_time_is_guessed():
    trail = Trail([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3])
    assert trail.guess(MOST) == [4, 5, 6, 7]
    assert trail.guess(2) == [4, 5]
    trail.push(4)
    assert trail.guess(MOST) == [5, 6, 7, 8, 1, 2]
    assert Trail([1, 2, 3, 4, 5]).guess(MOST) == []
    assert Trail([1, 2]).guess(MOST) == []


def test_the_newest_likeness_counts():
    assert Trail([1, 2, 3, 4, 1, 2, 3, 5, 6, 7, 1, 2, 3]).guess(3) == [5, 6, 7]


def test_what_repeats_itself_is_guessed_to_go_on():
    assert Trail([1, 2] * 6).guess(9) == [1, 2, 1, 2, 1, 2, 1, 2, 1]
    assert Trail([7] * 5).guess(4) == [7, 7, 7, 7]


def test_a_guess_ends_where_a_text_ends():
    assert Trail([1, 2, 3, 4, -1, 9, 1, 2, 3]).guess(MOST) == [4]


def test_the_price_rises_with_the_guesses():
    assert price(0) == 1 < price(4) < price(MOST) < MOST


# ---------------------------------------------------------------------------------------- when it is not exact


def test_only_where_it_is_exact(llama, tmp_path):
    cache = llama.model.new_cache()
    assert exact(llama.model, cache)
    assert not exact(headway.load(llama.folder, dtype="bfloat16").model, cache)
    assert not exact(llama.model, object()), "a cache that cannot forget"
    config = llama.model.config
    attention = config.stack.block.attention
    scaled = replace(attention.rotary, scaling=headway.layers.positions.RotaryScaling("dynamic", factor=2.0))
    block = replace(config.stack.block, attention=replace(attention, rotary=scaled))
    odd = type("Odd", (), {"config": replace(config, stack=replace(config.stack, block=block))})()
    odd.parameters = llama.model.parameters
    assert not exact(odd, cache)


def test_a_tie_is_the_one_thing_that_can_fall_otherwise(llama):
    """What the guarantee rests on: several tokens in one step give the scores of one by one, up to the last bits."""
    model = llama.model
    ids = torch.tensor([LOOP])
    with torch.no_grad():
        one, many = model.new_cache(), model.new_cache()
        single = torch.stack([model.step(ids[:, i : i + 1], one) for i in range(len(LOOP))], 1)
        whole = model.step(ids, many, last=False)
    difference = (single - whole).abs().max()
    assert difference < 1e-5 * whole.abs().max()
    margins = whole.topk(2).values
    assert (margins[..., 0] - margins[..., 1]).min() > 10 * difference, "control: no tie in this comparison"


def test_a_recurrent_model_writes_as_before():
    from headway.layers.embeddings import EmbeddingConfig
    from headway.models.config import RecurrentConfig

    torch.manual_seed(0)
    model = RecurrentEncoderDecoder(RecurrentConfig(EmbeddingConfig(12, 8), 8, start_id=1)).eval()
    with_, without = both(model, [1], GenerationSettings(max_new_tokens=12), sources=[[3, 4, 5, 3, 4, 5]])
    assert with_[0].ids == without[0].ids
