"""Batches by length: each index once, sorted, within the limits and as large as they allow."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.data.length_batches import BatchLimits, by_length, cut

LENGTHS = st.lists(st.integers(0, 60), max_size=80)
LIMITS = st.builds(
    BatchLimits,
    rows=st.none() | st.integers(1, 9),
    tokens=st.none() | st.integers(1, 90),
    padded_tokens=st.none() | st.integers(1, 90),
    padding=st.none() | st.sampled_from([0.0, 0.1, 0.5]),
)


def allowed(lengths, limits):
    return limits.allow(len(lengths), sum(lengths), max(lengths))


@given(LENGTHS, LIMITS, st.booleans())
def test_each_index_once_within_the_limits_and_no_batch_could_take_another(lengths, limits, longest_first):
    batches = by_length(lengths, limits, longest_first=longest_first)
    order = [index for batch in batches for index in batch]
    sign = -1 if longest_first else 1
    assert order == sorted(range(len(lengths)), key=lambda index: sign * lengths[index])
    for number, batch in enumerate(batches):
        assert len(batch) == 1 or allowed([lengths[index] for index in batch], limits)
        if number + 1 < len(batches):
            longer = [lengths[index] for index in [*batch, batches[number + 1][0]]]
            assert not allowed(longer, limits)


@pytest.mark.parametrize(
    ("limits", "batches"),
    [
        (BatchLimits(tokens=18), [[1, 5, 0, 3], [4], [2]]),
        (BatchLimits(padded_tokens=18), [[1, 5, 0], [3, 4], [2]]),
        (BatchLimits(rows=4), [[1, 5, 0, 3], [4, 2]]),
        (BatchLimits(padding=0.0), [[1], [5], [0], [3, 4], [2]]),
        (BatchLimits(), [[1, 5, 0, 3, 4, 2]]),
    ],
)
def test_examples(limits, batches):
    assert by_length([5, 1, 17, 9, 9, 3], limits) == batches
    assert by_length([], limits) == []


def test_a_sequence_over_the_limit_is_a_batch_of_its_own():
    assert by_length([40, 2], BatchLimits(tokens=18)) == [[1], [0]]


def test_cutting_keeps_the_order():
    assert list(cut([9, 1, 9, 1, 1], BatchLimits(padded_tokens=18))) == [slice(0, 2), slice(2, 4), slice(4, 5)]
