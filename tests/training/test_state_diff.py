"""Bitwise comparison names the first difference."""

import pytest
import torch

from headway.training.state_diff import first_difference, without_clock

NAN = torch.tensor([1.0, float("nan")])


@pytest.mark.parametrize(
    "value", [1, 1.5, "x", None, [1, (2, 3)], {"a": {"b": [NAN]}}, torch.tensor(3), torch.zeros(0, 2), NAN.bfloat16()]
)
def test_a_value_equals_itself(value):
    assert first_difference(value, value) is None


@pytest.mark.parametrize(
    "left,right,message",
    [
        ({"a": [1, 2]}, {"a": [1, 3]}, "a[1]: 2 and 3"),
        ({"a": 1}, {"a": 1, "b": 2}, "'b'"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "another order"),
        ([1], [1, 2], "1 and 2 entries"),
        (1, 1.0, "int and float"),
        ({"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([1.0, 2.5])}, "w: 1 of 2 values differ, by up to 0.5"),
        (torch.zeros(2), -torch.zeros(2), "differ"),  # equal as numbers, not as bits
        (torch.zeros(2), torch.zeros(2).double(), "float32 (2,) and torch.float64"),
        (torch.zeros(2, 1), torch.zeros(1, 2), "(2, 1) and"),
    ],
)
def test_the_first_difference_is_named(left, right, message):
    assert message in first_difference(left, right)


def test_clock_entries_of_a_log_are_removed():
    assert without_clock([{"step": 1, "loss": 2.0, "speed": 3.0, "seconds": 4.0}]) == [{"step": 1, "loss": 2.0}]
