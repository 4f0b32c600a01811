"""The key/value cache: what is appended is what is read, rows have lengths of their own and move together."""

import pytest
import torch
from torch import Tensor

from headway.layers.cache import KeyValueCache, LayerCache, fills_gaps
from headway.layers.positions import positions_of

CPU = torch.device("cpu")


def test_appending_grows_and_keeps_everything() -> None:
    cache, parts = LayerCache(), []
    for length in (1, 3, 1, 7):
        part = torch.randn(2, 3, length, 4)
        parts.append(part)
        keys, values = cache.append(part, -part)
        assert torch.equal(keys, torch.cat(parts, dim=2)) and torch.equal(values, -keys)
    assert cache.columns == 12


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
    cache = KeyValueCache(1, rows=2)
    source = torch.randn(2, 1, 4, 3)
    cache.cross[0].append(source, source)
    cache.memory, cache.memory_padding_mask = torch.randn(2, 4, 3), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
    memory = cache.memory
    cache.select([0, 0, 1, 1])  # two beams each
    kept = cache.memory
    assert torch.equal(kept, memory[[0, 0, 1, 1]])
    cache.select([1, 0, 3, 3])  # places change within a request
    assert cache.memory is kept
    cache.select([2, 3])  # the first request is done
    assert torch.equal(cache.memory, memory[[1, 1]]) and not cache.memory_padding_mask[:, 2:].any()
    assert torch.equal(cache.cross[0].keys, source[[1, 1]])


def feed(cache: KeyValueCache, columns: Tensor, lengths: list[int]) -> Tensor:
    """Appends (row, kv_head, new, d) to the only layer, counting `lengths` of them in each row."""
    positions = positions_of(columns.shape[2], device=CPU, past=cache.lengths)
    keys, _ = cache.layers[0].append(columns, columns, positions)
    cache.advance(lengths)
    return keys


def test_rows_have_lengths_of_their_own() -> None:
    cache = KeyValueCache(1, rows=2)
    prompt, one, two = (torch.randn(2, 1, new, 4) for new in (5, 1, 2))
    feed(cache, prompt, [5, 2])  # the second row is padded on the right
    feed(cache, one, [1, 1])
    keys = feed(cache, two, [2, 2])
    assert cache.lengths == [8, 5] and keys.shape[2] == 8
    assert torch.equal(keys[0], torch.cat([prompt[0], one[0], two[0]], dim=1))
    assert torch.equal(keys[1, :, :5], torch.cat([prompt[1, :, :2], one[1], two[1]], dim=1))
    assert torch.isfinite(keys).all()


def test_rows_join_and_leave() -> None:
    first, second = KeyValueCache(1, rows=2), KeyValueCache(1, rows=1)
    a, b = torch.randn(2, 1, 3, 4), torch.randn(1, 1, 6, 4)
    feed(first, a, [3, 3])
    feed(second, b, [6])
    first.append_rows(second)
    assert first.lengths == [3, 3, 6] and len(first) == 3
    first.select([2, 0])
    assert first.lengths == [6, 3]
    more = torch.randn(2, 1, 1, 4)
    keys = feed(first, more, [1, 1])
    assert torch.equal(keys[0], torch.cat([b[0], more[0]], dim=1))
    assert torch.equal(keys[1, :, :4], torch.cat([a[0], more[1]], dim=1))
    first.select([1])
    assert first.lengths == [4] and first.layers[0].columns == 4
    first.select([])
    third = KeyValueCache(1, rows=1)
    feed(third, b, [6])
    first.append_rows(third)
    assert first.lengths == [6] and torch.equal(first.layers[0].keys, b)


def test_sources_of_different_lengths_join() -> None:
    first, second = KeyValueCache(1, rows=1), KeyValueCache(1, rows=1)
    for cache, length in ((first, 2), (second, 4)):
        cache.memory = torch.randn(1, length, 3)
        cache.cross[0].append(torch.randn(1, 1, length, 2), torch.randn(1, 1, length, 2))
    keys = first.cross[0].keys
    first.append_rows(second)
    assert first.memory is not None and first.memory.shape == (2, 4, 3)
    assert first.memory_padding_mask is not None
    assert first.memory_padding_mask.tolist() == [[True, True, False, False], [True] * 4]
    assert torch.equal(first.cross[0].keys[0, :, :2], keys[0])


def test_forgetting() -> None:
    cache = KeyValueCache(2, rows=2)
    for layer in cache.layers:
        layer.append(torch.ones(2, 1, 6, 2), torch.ones(2, 1, 6, 2))
    cache.lengths = [6, 5]
    cache.truncate([4, 5])
    assert cache.lengths == [4, 5] and cache.layers[1].columns == 5
    with pytest.raises(ValueError, match="zip"):
        cache.truncate([1])


def test_rows_that_leave_and_join_move_no_others() -> None:
    """The last rows take the places of those that left, and new ones the space behind; nothing of a row that left is
    seen again, though its numbers were NaN."""
    cache, names = KeyValueCache(1, rows=0), list[int]()

    def join(count: int, length: int, first: int) -> None:
        new = KeyValueCache(1, rows=count)
        columns = torch.arange(first, first + count).float()[:, None, None, None].expand(count, 2, length, 4)
        feed(new, columns, [length] * count)
        cache.append_rows(new)
        names.extend(range(first, first + count))

    def leave(rows: list[int]) -> None:
        cache.select(rows)
        names[:] = [names[row] for row in rows]

    join(4, 6, 1)
    join(2, 3, 5)  # makes room for more
    buffer = cache.layers[0]._keys
    assert buffer is not None
    buffer[1], buffer[3] = torch.nan, torch.nan
    leave([0, 5, 2, 4])
    assert cache.layers[0]._keys is buffer and len(cache.layers[0].keys) == 4
    join(2, 5, 7)
    assert cache.layers[0]._keys is buffer, "there was room"
    assert cache.lengths == [6, 3, 6, 3, 5, 5] and names == [1, 6, 3, 5, 7, 8]
    for row, (name, length) in enumerate(zip(names, cache.lengths, strict=True)):
        assert torch.equal(cache.layers[0].keys[row, :, :length], torch.full((2, length, 4), float(name)))
    assert not buffer[:6].isnan().any()
    leave([5, 0])  # places change: rows are copied
    assert torch.equal(cache.layers[0].keys[:, 0, 0, 0], torch.tensor([8.0, 1.0]))


@pytest.mark.parametrize(("rows", "fills"), [([0, 3, 2], True), ([0, 1], True), ([1, 0], False), ([0, 2, 2], False)])
def test_fills_gaps(rows: list[int], fills: bool) -> None:
    assert fills_gaps(rows) is fills
