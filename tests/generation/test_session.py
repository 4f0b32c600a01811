"""A session: each answer is that of a single request, whatever joins, leaves, fails or is cancelled around it."""

import copy
import gc
import random
import weakref
from dataclasses import replace

import pytest
import torch
from support.searches import Counted, steps_until_idle
from support.writers import tiny_decoder

from headway.engine import prepare, release, unsupported_reason
from headway.engine.prefix import PrefixCache
from headway.errors import InputError
from headway.generation import GenerationSettings, Session, generate
from headway.layers.embeddings import EmbeddingConfig
from headway.models.build import build
from headway.models.config import RecurrentConfig
from headway.models.recipes import Size, recurrent_decoder
from headway.models.recurrent import RecurrentEncoderDecoder

GREEDY = GenerationSettings(max_new_tokens=8)
SETTINGS = [  # sixteen requests; the context of the decoders is 64
    GenerationSettings(max_new_tokens=12),
    GenerationSettings(max_new_tokens=14, eos_ids=(8, 30), logprobs=True),
    GenerationSettings(max_new_tokens=9, repetition_penalty=1.3, no_repeat_ngram=3),
    GenerationSettings(max_new_tokens=9, repetition_penalty=1.3, no_repeat_ngram=3, eos_ids=(12,)),
    GenerationSettings(max_new_tokens=10, min_new_tokens=4, eos_ids=(8, 12, 17, 30), presence_penalty=0.7),
    GenerationSettings(max_new_tokens=7, prefix=(5, 9), forced_eos_ids=(3,), suppress_ids=(6, 7)),
    GenerationSettings(max_new_tokens=12, temperature=1.0, seed=1),
    GenerationSettings(max_new_tokens=9, temperature=0.7, top_p=0.9, n=3, eos_ids=(8, 30), seed=2),
    GenerationSettings(max_new_tokens=11, temperature=1.3, top_k=5, frequency_penalty=0.4, seed=2**40),
    GenerationSettings(max_new_tokens=8, beams=3, n=2, eos_ids=(8, 30)),
    GenerationSettings(max_new_tokens=10, beams=3, n=3, eos_ids=(8, 30), length_penalty=0.5, no_repeat_ngram=2),
    GenerationSettings(max_new_tokens=6, beams=4, groups=2, diversity_penalty=1.0, n=4, eos_ids=(8, 30)),
    GenerationSettings(max_new_tokens=12, regex="[a-t]{3,6}", eos_ids=(2,)),
    GenerationSettings(max_new_tokens=12, regex="(ca|sa)t ?[a-e]*", temperature=1.0, seed=4, eos_ids=(2,)),
    GenerationSettings(max_new_tokens=40, overflow="window"),
    GenerationSettings(max_new_tokens=12, stop=("a", "t s")),
]


@pytest.fixture(scope="module")
def models(pair_of):
    """Shape and weights → model; the engine's compiled step is part of int8 and of "compiled"."""
    torch.manual_seed(0)
    recurrent = RecurrentEncoderDecoder(RecurrentConfig(EmbeddingConfig(40, 16), 16, start_id=1)).eval()
    with torch.no_grad():
        for parameter in recurrent.parameters():
            parameter.mul_(3)
    language = build(recurrent_decoder(Size(width=16, layers=2, heads=2, dropout=0.0), vocab=40, cell="lstm")).eval()
    with torch.no_grad():
        for parameter in language.parameters():
            parameter.copy_(torch.randn(parameter.shape) * 0.5)
    plain = {
        "lstm": language,
        "llama": pair_of("llama").model,
        "t5": pair_of("t5").model,
        "gru": recurrent,
    }
    made = {}

    def make(shape, weights):
        if (shape, weights) not in made:
            model = release(copy.deepcopy(plain[shape]))
            if weights != "plain":
                model = prepare(model, "int8" if weights == "int8" else None)
            made[shape, weights] = model
        return made[shape, weights]

    return make


def draw_requests(model, rng):
    """(prompt, settings, source) of each of the settings, in random order."""
    out = []
    for settings in rng.sample(SETTINGS, len(SETTINGS)):
        if model.reads_source:
            prompt, source = [model.start_id], [rng.randrange(3, 40) for _ in range(rng.randrange(1, 12))]
        else:
            longest = 62 if settings.overflow == "window" else 30
            prompt, source = [rng.randrange(3, 40) for _ in range(rng.randrange(1, longest))], None
        out.append((prompt, settings, source))
    return out


def run(session, requests, rng):
    """Hypotheses of the requests, which arrive at random steps, among others that are cancelled at random steps."""
    waiting, ids, others, found, events = list(range(len(requests))), {}, {}, {}, {}
    step = 0
    while waiting or not session.idle:
        while waiting and rng.random() < 0.4:
            place = waiting.pop()
            prompt, settings, source = requests[place]
            ids[session.add(prompt, settings, source=source)] = place
            if rng.random() < 0.6:
                prompt, settings, source = rng.choice(requests)
                others[session.add(prompt, settings, source=source)] = step + rng.randrange(6)
        for other in [other for other, at in others.items() if at <= step]:
            session.cancel(other)
            del others[other]
        for event in session.step():
            assert event.error is None, event.error
            if event.id in ids:
                place = ids[event.id]
                assert event.sample not in found.setdefault(place, {}), "an event after the end"
                events.setdefault((place, event.sample), []).append(event)
                if event.finished_by is not None:
                    found[place][event.sample] = event.hypothesis
        step += 1
        assert step < 1000
    for (place, sample), seen in events.items():
        hypothesis, settings = found[place][sample], requests[place][1]
        assert "".join(event.text for event in seen) == (hypothesis.text or "")
        assert [event.finished_by for event in seen] == [None] * (len(seen) - 1) + [hypothesis.finished_by]
        if settings.beams == 1:
            tokens = [event.token for event in seen if event.token is not None]
            assert [*settings.prefix, *tokens] == hypothesis.ids
    return [[found[place][sample] for sample in sorted(found[place])] for place in range(len(requests))]


def differences(model, tokenizer, seed, **options):
    """Which of 16 requests get another answer in a session than alone."""
    rng = random.Random(seed)
    requests = draw_requests(model, rng)
    single = []
    for prompt, settings, source in requests:
        sources = None if source is None else [source]
        single.append(generate(model, [prompt], settings, sources=sources, tokenizer=tokenizer)[0])
    session = Session(model, tokenizer=tokenizer, **options)
    together = run(session, requests, rng)
    assert len(session) == 0 and session.idle
    assert sum(len(answers) for answers in together) >= 16
    return [
        (settings, want, got)
        for (_, settings, _), want, got in zip(requests, single, together, strict=True)
        if [(h.ids, h.text, h.finished_by, h.fits) for h in want]
        != [(h.ids, h.text, h.finished_by, h.fits) for h in got]
        or [h.score for h in got] != pytest.approx([h.score for h in want], abs=1e-3)
    ]


def grid():
    """Shapes, weights and seeds. `make test` runs every pair of them once, `make test-slow` the others."""
    return [
        pytest.param(shape, weights, seed, marks=[] if (i + j + seed) % 3 == 0 else pytest.mark.slow)
        for i, shape in enumerate(("llama", "t5", "gru", "lstm"))
        for j, weights in enumerate(("plain", "compiled", "int8"))
        for seed in range(3)
    ]


@pytest.mark.parametrize(("shape", "weights", "seed"), grid())
def test_each_answer_is_that_of_a_single_request(models, tokenizer, shape, weights, seed):
    options = [{}, {"prefill_tokens": 7}, {"prefill_tokens": None}][seed]
    model = models(shape, weights)
    assert differences(model, tokenizer, seed, **options) == []
    if weights != "plain":
        assert unsupported_reason(model) is None, "the compiled step was used"


def test_control_a_wrong_row_is_found(models, tokenizer, monkeypatch):
    model = models("llama", "plain")
    cache = type(model.new_cache(1))
    select = cache.select
    monkeypatch.setattr(cache, "select", lambda self, rows: select(self, [*rows[1:], rows[0]]))
    assert len(differences(model, tokenizer, 0)) > 3


def test_control_rows_that_join_in_the_wrong_order_are_found(models, tokenizer, monkeypatch):
    model = models("llama", "plain")
    cache = type(model.new_cache(1))
    append = cache.append_rows

    def reversed_rows(self, other):
        append(self, other)
        self.select([*range(len(self) - 2), len(self) - 1, len(self) - 2])

    monkeypatch.setattr(cache, "append_rows", reversed_rows)
    assert len(differences(model, tokenizer, 0)) > 3


# ---------------------------------------------------------------------------------------- steps and events


def test_rows_join_and_leave_at_any_step():
    session = Session(tiny_decoder(40))
    first = session.add([5, 9], replace(GREEDY, max_new_tokens=4))
    steps = [session.step(), session.step()]
    second = session.add([7], replace(GREEDY, max_new_tokens=3))
    steps += steps_until_idle(session)
    assert [[event.id for event in events] for events in steps] == [
        [first], [first], [first, second], [first, second], [second]
    ]  # fmt: skip
    assert [event.finished_by for events in steps for event in events] == [None] * 4 + ["length", None, "length"]
    assert session.step() == []


def test_samples_share_one_prefill(llama):
    model = Counted(llama.model)
    session = Session(model)
    session.add([5, 9, 11], GenerationSettings(max_new_tokens=4, temperature=1.0, n=3, seed=3))
    [first, *_] = steps_until_idle(session)
    assert model.shapes == [(1, 3), (3, 1), (3, 1), (3, 1)]
    assert [(event.id, event.sample) for event in first] == [(0, 0), (0, 1), (0, 2)]


def test_a_beam_search_has_events_at_its_end(tokenizer):
    session = Session(tiny_decoder(len(tokenizer)), tokenizer=tokenizer)
    session.add([5], GenerationSettings(max_new_tokens=5, beams=3, n=2))
    steps = steps_until_idle(session)
    assert [len(events) for events in steps] == [0, 0, 0, 0, 2]
    assert [(event.sample, event.token, event.text) for event in steps[-1]] == [
        (i, None, event.hypothesis.text) for i, event in enumerate(steps[-1])
    ]
    assert steps[-1][0].hypothesis.score >= steps[-1][1].hypothesis.score


def test_prefixes_of_past_requests_are_reused(llama):
    begin = [3 + i % 30 for i in range(20)]
    prompts = [[*begin, 5], [*begin, 9, 11], [*begin, 7], [8, 9, 10]]
    want = [generate(llama.model, [prompt], GREEDY)[0][0].ids for prompt in prompts]
    model, prefixes = Counted(llama.model), PrefixCache()
    session = Session(model, prefixes=prefixes)
    session.add(prompts[0], GREEDY)
    found = steps_until_idle(session)
    assert model.shapes[0] == (1, 21) and len(prefixes) == 1
    for prompt in prompts[1:]:
        session.add(prompt, GREEDY)
    model.shapes.clear()
    found += steps_until_idle(session)
    assert model.shapes[:3] == [(1, 2), (1, 1), (1, 3)], "only what the first request did not have"
    assert [[e.token for events in found for e in events if e.id == id] for id in range(4)] == want


def test_a_long_prompt_does_not_stall_the_others(llama):
    """Eight tokens of a prompt per step: the running row has a token in every step, and a short prompt that comes later
    waits for one chunk, not for the whole long one."""
    model = Counted(llama.model)
    session = Session(model, prefill_tokens=8)
    running = session.add([5, 9, 11], replace(GREEDY, max_new_tokens=20))
    session.step()
    long = session.add([3 + i % 30 for i in range(40)], GREEDY)
    session.step()
    short = session.add([7, 7], GREEDY)
    seen = [{event.id for event in session.step()} for _ in range(6)]
    assert all(running in ids for ids in seen)
    assert min(step for step, ids in enumerate(seen) if short in ids) <= 1
    assert min(step for step, ids in enumerate(seen) if long in ids) == 4
    assert max(rows * tokens for rows, tokens in model.shapes) <= 8


def test_waiting_prompts_of_similar_length_are_prefilled_together(llama):
    model = Counted(llama.model)
    session = Session(model)
    for length in (4, 5, 20, 5):
        session.add([3 + (length + i * i) % 30 for i in range(length)], GREEDY)
    session.step()
    assert model.shapes == [(1, 20), (3, 5)]


def test_a_row_that_overflows_the_context_returns_to_prefill(llama):
    """The other row goes on while it is prefilled in chunks."""
    model = Counted(llama.model)
    session = Session(model, prefill_tokens=8)
    windowed = session.add([3 + i % 30 for i in range(64)], replace(GREEDY, max_new_tokens=4, overflow="window"))
    steps = []
    while not any(events for events in steps):
        steps.append(session.step())
    other = session.add([5], replace(GREEDY, max_new_tokens=20))
    steps = [{event.id for event in session.step()} for _ in range(8)]
    assert all(other in ids for ids in steps[1:])
    assert [windowed in ids for ids in steps] == [False, False, False, False, True, True, True, False]


# ---------------------------------------------------------------------------------------- cancel, memory


@pytest.mark.parametrize("beams", [1, 3])
def test_cancel_in_every_phase(llama, beams):
    prompt = [3 + i % 30 for i in range(30)]
    chosen = replace(GREEDY, beams=beams)
    [want] = generate(llama.model, [[5, 9]], GREEDY)
    for steps in range(8):  # waiting, the chunks of the prefill, running
        session = Session(llama.model, prefill_tokens=8)
        kept = session.add([5, 9], GREEDY)
        victim = session.add(prompt, chosen)
        events = [event for _ in range(steps) for event in session.step()]
        session.cancel(victim)
        assert len(session) == 1
        after = [event for events in steps_until_idle(session) for event in events]
        assert {event.id for event in after} == {kept}
        assert [event.token for event in (*events, *after) if event.id == kept] == want[0].ids
        session.cancel(victim)
        session.cancel(kept)
        with pytest.raises(InputError, match="no request 2"):
            session.cancel(2)


def test_finished_and_cancelled_rows_are_freed(llama):
    session = Session(llama.model)
    short, long = session.add([5], replace(GREEDY, max_new_tokens=2)), session.add([7, 8], GREEDY)
    more = session.add([9], replace(GREEDY, temperature=1.0, n=4, seed=1))
    session.step()
    cache = weakref.ref(session._batch.cache)
    assert len(cache()) == 6
    session.step()
    assert len(cache()) == 5, short
    session.cancel(more)
    assert len(cache()) == 1
    session.cancel(long)
    gc.collect()
    assert cache() is None and session.idle
