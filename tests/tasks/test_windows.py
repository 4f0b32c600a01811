"""Windows over words: every word is predicted once."""

from hypothesis import given
from hypothesis import strategies as st

from headway.tasks.windows import windows


def test_what_fits_is_one_window():
    assert windows([1, 2, 3], 6) == [(range(0, 3), range(0, 3))]


def test_neighbours_share_half_a_window_and_part_in_its_middle():
    assert windows([1] * 10, 6) == [
        (range(0, 6), range(0, 4)),
        (range(3, 9), range(4, 7)),
        (range(6, 10), range(7, 10)),
    ]


@given(st.integers(1, 12), st.data())
def test_every_word_is_predicted_once_and_every_window_fits(limit, data):
    sizes = data.draw(st.lists(st.integers(1, limit), min_size=1, max_size=60))
    found = windows(sizes, limit)
    assert [word for window in found for word in window.predicted] == list(range(len(sizes)))
    for window in found:
        assert set(window.predicted) <= set(window.words)
        assert sum(sizes[word] for word in window.words) <= limit
