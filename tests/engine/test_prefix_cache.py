"""Prefix caching: the same output with fewer tokens read, within a memory limit, and no leak between requests."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.writers import tiny_decoder, tiny_translator

from headway.engine.prefix import MIN_PREFIX, PrefixCache, common_prefix_length
from headway.generation import GenerationSettings, generate

GREEDY = GenerationSettings(max_new_tokens=8)
FIRST = list(range(1, 21))
MODEL = tiny_decoder(30)


@pytest.fixture
def read(monkeypatch) -> list[int]:
    """The number of new tokens of each step."""
    counts: list[int] = []
    step = MODEL.step

    def counted(ids, cache, **more):
        counts.append(ids.shape[1])
        return step(ids, cache, **more)

    monkeypatch.setattr(MODEL, "step", counted)
    return counts


def write(prompt, prefixes=None, model=MODEL, chosen=GREEDY):
    return [h.ids for h in generate(model, [prompt], chosen, prefixes=prefixes)[0]]


def test_a_known_prefix_is_not_read_again(read):
    prefixes = PrefixCache()
    answer = write(FIRST, prefixes)
    second = [*FIRST, *answer[0], 25, 26]
    read.clear()
    found = write(second, prefixes)
    assert read[0] == 3, "the last generated token, which is not in the cache yet, and the two new ones"
    assert found == write(second)
    read.clear()
    assert write(second, prefixes) == found
    assert read[0] == 1, "all but the last token, whose logits are needed"


def test_logits_equal_those_without_the_cache():
    prefixes = PrefixCache()
    write(FIRST, prefixes)
    ids = [*FIRST[:15], 25, 26, 27]
    fresh, reused = MODEL.new_cache(1), MODEL.new_cache(1)
    with torch.no_grad():
        known = prefixes.restore(MODEL, ids, reused)
        assert known == 15
        a, b = MODEL.step(torch.tensor([ids]), fresh), MODEL.step(torch.tensor([ids[known:]]), reused)
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    for one, other in zip(fresh.layers, reused.layers, strict=True):
        torch.testing.assert_close(one.keys, other.keys, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(one.values, other.values, atol=1e-5, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            st.integers(0, 20), st.lists(st.integers(0, 29), min_size=1, max_size=6), st.sampled_from([0.0, 0.8])
        ),
        min_size=2,
        max_size=6,
    )
)
def test_requests_do_not_affect_each_other(requests):
    """Any requests in any order, sharing any part of their beginnings: each has the output it has without the cache."""
    prefixes = PrefixCache(limit=20_000)
    for shared, rest, temperature in requests:
        prompt = [*FIRST[:shared], *rest]
        chosen = replace(GREEDY, temperature=temperature, seed=4)
        assert write(prompt, prefixes, chosen=chosen) == write(prompt, chosen=chosen)


def test_entries_are_copies():
    prefixes = PrefixCache()
    write(FIRST, prefixes)
    kept = [(k.clone(), v.clone()) for k, v in prefixes._entries[0].layers]
    cache = MODEL.new_cache(1, capacity=64)
    prefixes.restore(MODEL, [*FIRST, 3], cache)
    for layer in cache.layers:
        layer.keys.fill_(7.0)
        layer.values.fill_(7.0)
    for (k, v), (old_k, old_v) in zip(prefixes._entries[0].layers, kept, strict=True):
        assert torch.equal(k, old_k) and torch.equal(v, old_v)


def test_beams_and_samples_store_their_prompt(read):
    for chosen in (replace(GREEDY, beams=3, n=2), replace(GREEDY, temperature=0.7, n=3, seed=1)):
        prefixes = PrefixCache()
        first = write(FIRST, prefixes, chosen=chosen)
        read.clear()
        assert write(FIRST, prefixes, chosen=chosen) == first == write(FIRST, chosen=chosen)
        assert read[0] == 1


def test_changed_weights_invalidate_entries():
    model = tiny_decoder(30)
    prefixes = PrefixCache()
    old = write(FIRST, prefixes, model=model)
    with torch.no_grad():
        model.stack.blocks[0].attention.value.weight.mul_(-2)
    assert prefixes.restore(model, [*FIRST, 1], model.new_cache(1)) == 0
    assert write(FIRST, prefixes, model=model) == write(FIRST, model=model)
    assert write(FIRST, model=model) != old, "control: the change has an effect"
    assert prefixes.restore(MODEL, [*FIRST, 1], MODEL.new_cache(1)) == 0, "an entry of another model"


def test_the_least_recently_used_entry_is_evicted_first():
    one = PrefixCache()
    write(FIRST, one)
    size = one.nbytes
    prefixes = PrefixCache(limit=int(2.5 * size))
    starts = [[i, *FIRST[1:]] for i in (21, 22, 23)]
    write(starts[0], prefixes)
    write(starts[1], prefixes)
    assert prefixes.restore(MODEL, [*starts[0], 5], MODEL.new_cache(1)) > 0  # used again, so 22 is now the oldest
    write(starts[2], prefixes)
    assert prefixes.nbytes <= prefixes.limit and len(prefixes) == 2
    known = [prefixes.restore(MODEL, [*start, 5], MODEL.new_cache(1)) > 0 for start in starts]
    assert known == [True, False, True]
    tiny = PrefixCache(limit=size // 2)
    write(FIRST, tiny)
    assert len(tiny) == 0, "an entry larger than the limit is not stored"


def test_a_conversation_is_stored_once():
    prefixes = PrefixCache()
    prompt = list(FIRST)
    for turn in range(3):
        prompt = [*prompt, *write(prompt, prefixes)[0], 20 + turn]
    assert len(prefixes) == 1
    prefixes.clear()
    assert len(prefixes) == 0 and prefixes.nbytes == 0


def test_short_prefixes_batches_and_sources_are_not_stored():
    prefixes = PrefixCache()
    write(FIRST, prefixes)
    assert prefixes.restore(MODEL, [*FIRST[: MIN_PREFIX - 1], 29], MODEL.new_cache(1)) == 0
    assert prefixes.restore(MODEL, [29, *FIRST], MODEL.new_cache(1)) == 0
    generate(MODEL, [FIRST, FIRST[:5]], GREEDY, prefixes=prefixes)
    assert len(prefixes) == 1, "a batch of requests is not stored"
    translator = tiny_translator()
    plain = generate(translator, [[1]], GREEDY, sources=[[3, 4, 5]])
    for source in ([3, 4, 5], [6, 7]):
        found = generate(translator, [[1]], GREEDY, sources=[source], prefixes=prefixes)
        assert (found == plain) == (source == [3, 4, 5]), "the answer depends on the source"
    assert len(prefixes) == 1


def test_common_prefix_length():
    assert common_prefix_length([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix_length([1, 2], [1, 2, 4]) == 2
    assert common_prefix_length([], [1]) == 0
