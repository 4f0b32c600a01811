"""A short soak; `make -C benchmarks soak` runs the hour."""

from pathlib import Path

import pytest
from serving.soak import CLIENTS, growth, same, soak


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_trust_39_a_short_soak(tmp_path: Path) -> None:
    assert soak(tmp_path, 0.3) == 0


def test_control_a_wrong_answer_is_found() -> None:
    assert same([{"a": 1.0, "b": ["x"]}], [{"a": 1.00001, "b": ["x"]}])
    assert not same([{"a": 1.1}], [{"a": 1.0}])
    assert not same(["x"], ["y"]) and not same(["x"], ["x", "x"])


def test_control_growth_is_found() -> None:
    level = [(400_000_000 + at % 3, 60 + at % CLIENTS) for at in range(100)]
    assert growth(level) == []
    leak = [(memory + 500_000 * at, files) for at, (memory, files) in enumerate(level)]
    assert "memory" in growth(leak)[0] and len(growth(leak)) == 1
    sockets = [(memory, files + at) for at, (memory, files) in enumerate(level)]
    assert "descriptors" in growth(sockets)[0]
    early = [(memory - 100_000_000, files) for memory, files in level[:10]] + level[10:]
    assert growth(early) == [], "what is loaded at first is not growth"
