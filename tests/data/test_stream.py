"""Windows over a token stream."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.stream import TokenStream
from headway.errors import DataError


@given(st.integers(1, 20), st.integers(1, 300), st.integers(0, 5), st.integers(0, 5))
def test_windows_tile_the_stream(context, extra, epoch, seed):
    tokens = np.arange(context + extra)
    stream = TokenStream(tokens, context)
    windows = [stream.window(index, epoch, seed=seed) for index in range(len(stream))]
    assert all(len(window) == context + 1 for window in windows)
    assert all(a[-1] == b[0] for a, b in pairwise(windows))  # the last target is the next input
    used = len(windows) * context + 1
    assert len(tokens) - used < 2 * context  # no more than two windows' worth is left out


def test_the_offset_depends_on_the_epoch_and_takes_every_value():
    stream = TokenStream(np.arange(1000), 10)
    offsets = [stream.offset(epoch, seed=3) for epoch in range(60)]
    assert offsets == [stream.offset(epoch, seed=3) for epoch in range(60)]
    assert set(offsets) == set(range(10))
    assert offsets != [stream.offset(epoch, seed=4) for epoch in range(60)]


def test_windows_are_views_and_bounds_are_kept():
    tokens = np.arange(100)
    stream = TokenStream(tokens, 10)
    assert np.shares_memory(stream.window(0), tokens)
    with pytest.raises(IndexError):
        stream.window(len(stream))
    with pytest.raises(DataError, match="10 tokens, fewer than one window of 11"):
        TokenStream(np.arange(10), 10)
