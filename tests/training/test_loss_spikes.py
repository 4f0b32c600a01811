"""One batch out of line is left out; everything else is taken."""

from headway.training.loss_spikes import RECENT, SpikeFilter


def usual(spikes: SpikeFilter, count: int = RECENT) -> SpikeFilter:
    for number in range(count):
        assert spikes.judge(0.4 + 0.2 * (number % 2)) is None
    return spikes


def test_a_spike_is_left_out_and_told():
    spikes = usual(SpikeFilter(20, clip=1.0))
    said = spikes.judge(100.0)
    assert said is not None and "100" in said and "200 times the median" in said
    assert spikes.judge(0.5) is None
    assert spikes.judge(100.0) is not None


def test_what_is_no_spike():
    assert usual(SpikeFilter(20, clip=1.0)).judge(9.0) is None  # 18 times the median
    assert usual(SpikeFilter(20, clip=1.0), RECENT - 1).judge(100.0) is None  # too early to know
    assert usual(SpikeFilter(20, clip=200.0)).judge(100.0) is None  # clipping would not even cut it
    assert usual(SpikeFilter(0, clip=1.0)).judge(1e9) is None  # not wanted
    assert usual(SpikeFilter(20, clip=0.0)).judge(100.0) is not None  # no clipping at all: more reason to


def test_a_batch_that_still_teaches_is_no_spike():
    spikes = SpikeFilter(20, clip=1.0)
    for number in range(RECENT):  # nearly everything is known by heart
        spikes.judge(3.0 if number == 50 else 0.02)
    assert spikes.judge(5.0) is None  # 250 times the median, but not twice what has been seen


def test_two_in_a_row_are_no_longer_a_single_batch():
    spikes = usual(SpikeFilter(20, clip=1.0))
    assert [spikes.judge(100.0) is None for _ in range(RECENT)] == [False] + [True] * (RECENT - 1)


def test_nothing_learnt_is_no_measure():
    spikes = SpikeFilter(20, clip=1.0)
    for _ in range(RECENT):
        spikes.judge(0.0)
    assert spikes.judge(5.0) is None


def test_it_goes_on_from_its_state():
    one = usual(SpikeFilter(20, clip=1.0))
    one.judge(100.0)
    other = SpikeFilter(20, clip=1.0)
    other.load(one.state())
    assert [one.judge(norm) for norm in (100.0, 0.5, 100.0)] == [other.judge(norm) for norm in (100.0, 0.5, 100.0)]
    forgetful = SpikeFilter(20, clip=1.0)
    assert forgetful.judge(100.0) is None
