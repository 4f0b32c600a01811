"""The key/value cache: what is appended is what is read, rows move together, the room ahead is not copied."""

import torch

from headway.layers.cache import KeyValueCache, LayerCache


def test_appending_grows_and_keeps_everything() -> None:
    cache, parts = LayerCache(), []
    for length in (1, 3, 1, 7):
        part = torch.randn(2, 3, length, 4)
        parts.append(part)
        keys, values = cache.append(part, -part)
        assert torch.equal(keys, torch.cat(parts, dim=2)) and torch.equal(values, -keys)
    assert cache.length == 12


def test_selecting_rows_and_going_on() -> None:
    cache = LayerCache(capacity=50)
    first = torch.randn(3, 2, 5, 4)
    cache.append(first, first + 1)
    cache.select(torch.tensor([2, 2, 0]))
    more = torch.randn(3, 2, 1, 4)
    keys, values = cache.append(more, more + 1)
    expected = torch.cat([first[[2, 2, 0]], more], dim=2)
    assert torch.equal(keys, expected) and torch.equal(values, expected + 1)


def test_beams_of_one_request_keep_their_source_in_place() -> None:
    cache = KeyValueCache(1)
    source = torch.randn(2, 1, 4, 3)
    cache.cross[0].append(source, source)
    cache.memory, cache.memory_mask = torch.randn(2, 4, 3), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    memory = cache.memory
    cache.select(torch.tensor([0, 0, 1, 1]))  # two beams each
    kept = cache.memory
    assert torch.equal(kept, memory[[0, 0, 1, 1]])
    cache.select(torch.tensor([1, 0, 3, 3]))  # places change within a request
    assert cache.memory is kept
    cache.select(torch.tensor([2, 3]))  # the first request is done
    assert torch.equal(cache.memory, memory[[1, 1]]) and not cache.memory_mask[:, 2:].any()
    assert torch.equal(cache.cross[0].keys, source[[1, 1]])


def test_forgetting() -> None:
    cache = KeyValueCache(2)
    for layer in cache.layers:
        layer.append(torch.ones(1, 1, 6, 2), torch.ones(1, 1, 6, 2))
    cache.extend_mask(torch.tensor([[0, 1, 1, 1, 1, 1]]), batch=1, new=6, device=torch.device("cpu"))
    cache.truncate(4)
    assert cache.length == 4 and cache.mask is not None and cache.mask.shape == (1, 4)
