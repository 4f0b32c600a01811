"""A short soak; `make soak` runs the hour."""

from pathlib import Path

import pytest
from serving.soak import same, soak


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_trust_39_a_short_soak(tmp_path: Path) -> None:
    assert soak(tmp_path, 0.3) == 0


def test_control_a_wrong_answer_is_found() -> None:
    assert same([{"a": 1.0, "b": ["x"]}], [{"a": 1.00001, "b": ["x"]}])
    assert not same([{"a": 1.1}], [{"a": 1.0}])
    assert not same(["x"], ["y"]) and not same(["x"], ["x", "x"])
