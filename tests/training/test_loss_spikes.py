"""A single batch with an extreme gradient norm is skipped; no other is."""

from headway.training.loss_spikes import RECENT, SpikeFilter


def typical(spikes: SpikeFilter, count: int = RECENT) -> SpikeFilter:
    for number in range(count):
        assert spikes.check(0.4 + 0.2 * (number % 2)) is None
    return spikes


def test_a_spike_is_skipped_with_a_reason():
    spikes = typical(SpikeFilter(20, clip=1.0))
    reason = spikes.check(100.0)
    assert reason is not None and "100" in reason and "200 times the median" in reason
    assert spikes.check(0.5) is None
    assert spikes.check(100.0) is not None


def test_norms_that_are_not_spikes():
    assert typical(SpikeFilter(20, clip=1.0)).check(9.0) is None  # 18 times the median
    assert typical(SpikeFilter(20, clip=1.0), RECENT - 1).check(100.0) is None  # too few norms
    assert typical(SpikeFilter(20, clip=200.0)).check(100.0) is None  # below the clipping threshold
    assert typical(SpikeFilter(0, clip=1.0)).check(1e9) is None  # disabled
    assert typical(SpikeFilter(20, clip=0.0)).check(100.0) is not None  # without clipping


def test_a_norm_below_twice_the_largest_is_not_a_spike():
    spikes = SpikeFilter(20, clip=1.0)
    for number in range(RECENT):  # near convergence
        spikes.check(3.0 if number == 50 else 0.02)
    assert spikes.check(5.0) is None  # 250 times the median, but less than twice the largest


def test_the_step_after_a_skipped_one_is_taken():
    spikes = typical(SpikeFilter(20, clip=1.0))
    assert [spikes.check(100.0) is None for _ in range(RECENT)] == [False] + [True] * (RECENT - 1)


def test_a_median_of_zero_is_not_used():
    spikes = SpikeFilter(20, clip=1.0)
    for _ in range(RECENT):
        spikes.check(0.0)
    assert spikes.check(5.0) is None


def test_it_continues_from_its_state():
    one = typical(SpikeFilter(20, clip=1.0))
    one.check(100.0)
    other = SpikeFilter(20, clip=1.0)
    other.load(one.state())
    assert [one.check(norm) for norm in (100.0, 0.5, 100.0)] == [other.check(norm) for norm in (100.0, 0.5, 100.0)]
    fresh = SpikeFilter(20, clip=1.0)
    assert fresh.check(100.0) is None
