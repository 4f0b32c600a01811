"""The batch sampler: every example once per epoch, deterministic, within its budget."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.data.batch_sampler import BatchSampler, permutation
from headway.errors import ConfigError

LENGTHS = st.lists(st.integers(0, 60), max_size=300)
ARGUMENTS = st.fixed_dictionaries(
    {"batch": st.integers(60, 400), "unit": st.sampled_from(["examples", "tokens"]), "seed": st.integers(0, 9),
     "bucket": st.booleans(), "shuffle": st.booleans()}
)  # fmt: skip


def flat(epoch):
    return np.concatenate(epoch).tolist() if epoch else []


@settings(deadline=None, max_examples=200)
@given(LENGTHS, ARGUMENTS, st.integers(0, 5))
def test_each_example_once_deterministic_and_within_budget(lengths, arguments, number):
    sampler = BatchSampler(np.array(lengths, dtype=int), **arguments)
    epoch = sampler.epoch(number)
    assert sorted(flat(epoch)) == list(range(len(lengths)))
    assert all(len(batch) for batch in epoch)
    again = BatchSampler(np.array(lengths, dtype=int), **arguments)
    again.epoch(number + 1)  # another epoch before changes nothing
    assert [batch.tolist() for batch in again.epoch(number)] == [batch.tolist() for batch in epoch]
    if arguments["unit"] == "tokens":
        assert all(len(batch) * sampler.lengths[batch].max() <= arguments["batch"] for batch in epoch)
    else:
        assert all(len(batch) <= arguments["batch"] for batch in epoch)
        assert len(epoch) == -(-len(lengths) // arguments["batch"])


@pytest.mark.parametrize("unit", ["examples", "tokens"])
def test_epochs_and_seeds_differ_and_buckets_reduce_padding(unit):
    lengths = np.random.default_rng(0).geometric(0.05, 5000)
    batch = 32 if unit == "examples" else 32 * 60
    bucketed, loose = (
        BatchSampler(np.minimum(lengths, 200), batch=batch, unit=unit, seed=1, bucket=bucket)
        for bucket in (True, False)
    )
    assert flat(bucketed.epoch(0)) != flat(bucketed.epoch(1))
    assert flat(bucketed.epoch(0)) != flat(BatchSampler(bucketed.lengths, batch=batch, unit=unit, seed=2).epoch(0))
    assert bucketed.padding_share(bucketed.epoch(0)) < 0.05 < 0.5 < loose.padding_share(loose.epoch(0))
    sizes = [bucketed.lengths[batch].max() for batch in bucketed.epoch(0)]
    assert sizes != sorted(sizes)  # batches are shuffled, not fed from short to long


def test_token_batches_are_filled():
    sampler = BatchSampler(np.full(1000, 10), batch=100, unit="tokens")
    assert {len(batch) for batch in sampler.epoch(0)} == {10}


def test_without_shuffling_the_order_is_that_of_the_file():
    assert flat(BatchSampler(np.arange(10, 0, -1), batch=3, shuffle=False, bucket=False).epoch(4)) == list(range(10))


def test_padding_share_counts():
    sampler = BatchSampler(np.array([1, 3]), batch=2)
    assert sampler.padding_share([np.array([0, 1])]) == pytest.approx(2 / 6)


def test_an_example_beyond_the_budget_is_named():
    with pytest.raises(ConfigError, match="Example 1 has 50 tokens, more than the batch budget of 40"):
        BatchSampler(np.array([3, 50]), batch=40, unit="tokens")
    with pytest.raises(ConfigError, match="empty"):
        BatchSampler(np.array([3]), batch=0)


def test_the_permutation_never_changes():
    """Golden value: resuming an old run must find the same batches."""
    assert permutation(8, 1, 2, 0).tolist() == GOLDEN


GOLDEN = [5, 6, 3, 2, 1, 0, 4, 7]
