"""Windows over a token stream, and packing."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.stream import TokenStream, pack
from headway.errors import ConfigError, DataError


@given(st.integers(1, 20), st.integers(1, 300), st.integers(0, 5), st.integers(0, 5))
def test_windows_tile_the_stream(context, extra, epoch, seed):
    tokens = np.arange(context + extra)
    stream = TokenStream(tokens, context)
    windows = [stream.window(index, epoch, seed=seed) for index in range(len(stream))]
    assert all(len(window) == context + 1 for window in windows)
    assert all(a[-1] == b[0] for a, b in pairwise(windows))  # the last target is the next input
    used = len(windows) * context + 1
    assert len(tokens) - used < 2 * context  # no more than two windows' worth is left out


def test_the_shift_is_the_epochs_and_every_token_is_met():
    stream = TokenStream(np.arange(1000), 10)
    shifts = [stream.shift(epoch, seed=3) for epoch in range(60)]
    assert shifts == [stream.shift(epoch, seed=3) for epoch in range(60)]
    assert set(shifts) == set(range(10))
    assert shifts != [stream.shift(epoch, seed=4) for epoch in range(60)]


def test_windows_are_views_and_bounds_are_kept():
    tokens = np.arange(100)
    stream = TokenStream(tokens, 10)
    assert np.shares_memory(stream.window(0), tokens)
    with pytest.raises(IndexError):
        stream.window(len(stream))
    with pytest.raises(DataError, match="10 tokens, fewer than one window of 11"):
        TokenStream(np.arange(10), 10)


def plain_first_fit(lengths, size):
    rows, rooms = [], []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        row = next((row for row, room in enumerate(rooms) if room >= lengths[index]), len(rows))
        if row == len(rows):
            rows.append([])
            rooms.append(size)
        rows[row].append(index)
        rooms[row] -= lengths[index]
    return rows


@given(st.lists(st.integers(0, 50), max_size=80), st.integers(50, 90))
def test_packing_is_first_fit_decreasing(lengths, size):
    assert pack(lengths, size) == plain_first_fit(lengths, size)


def test_packing_fills_rows_and_refuses_what_cannot_fit():
    lengths = np.random.default_rng(0).integers(1, 200, 20_000)
    rows = pack(lengths, 512)
    assert sorted(index for row in rows for index in row) == list(range(20_000))
    assert lengths.sum() / (512 * len(rows)) > 0.99
    with pytest.raises(ConfigError, match="Example 1 has 9 tokens"):
        pack([1, 9], 8)
