import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import ConfigError
from headway.training.schedule import Schedule

repeatable = settings(derandomize=True, deadline=None)
FALLING = ["wsd", "cosine", "linear"]
schedules = st.builds(
    Schedule,
    kind=st.sampled_from([*FALLING, "inverse_sqrt", "constant"]),
    warmup=st.one_of(st.floats(0, 0.99), st.integers(1, 400).map(float)),
    decay=st.floats(0, 1),
    floor=st.floats(0, 1),
)


@repeatable
@given(schedules, st.integers(1, 500), st.data())
def test_a_factor_is_a_share_of_the_peak(schedule: Schedule, steps: int, data: st.DataObject) -> None:
    step = data.draw(st.integers(0, steps))
    assert 0 <= schedule.factor(step, steps) <= 1


@repeatable
@given(schedules.filter(lambda schedule: schedule.kind in FALLING), st.integers(1, 500))
def test_it_ends_at_the_floor(schedule: Schedule, steps: int) -> None:
    end = schedule.factor(steps, steps)
    reached = min(1.0, (steps + 1) / schedule.warmup) if schedule.warmup >= 1 else 1.0
    assert end == pytest.approx(min(schedule.floor, reached))


@repeatable
@given(
    st.sampled_from([*FALLING, "inverse_sqrt", "constant"]), st.floats(0.05, 0.45), st.floats(0.1, 0.5), st.floats(0, 1)
)
def test_it_never_jumps(kind: str, warmup: float, decay: float, floor: float) -> None:
    schedule = Schedule(kind, warmup=warmup, decay=decay, floor=floor)  # type: ignore[arg-type]
    steps = 1000
    factors = [schedule.factor(step, steps) for step in range(steps + 1)]
    steepest = max(abs(b - a) for a, b in pairwise(factors))
    assert steepest <= math.pi / 2 / (steps * min(warmup, decay)) + 1e-9
    assert max(factors) == pytest.approx(1.0, abs=0.02)


@repeatable
@given(schedules, st.integers(2, 200))
def test_it_rises_and_then_only_falls(schedule: Schedule, steps: int) -> None:
    factors = [schedule.factor(step, steps) for step in range(steps + 1)]
    peak = factors.index(max(factors))
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert all(a >= b - 1e-12 for a, b in pairwise(factors[peak:]))


def test_inverse_sqrt_is_the_formula_of_the_paper() -> None:
    width, warmup = 512, 4000
    schedule = Schedule("inverse_sqrt", warmup=warmup)
    peak = width**-0.5 * warmup**-0.5
    for step in (1, 2, 1999, 4000, 4001, 16000, 100_000):
        paper = width**-0.5 * min(step**-0.5, step * warmup**-1.5)
        assert schedule.factor(step - 1, 100_000) * peak == pytest.approx(paper, rel=1e-12)
    assert schedule.factor(warmup - 1, 100_000) == 1.0


def test_the_known_points_of_each_shape() -> None:
    wsd = Schedule("wsd", warmup=10, decay=0.2, floor=0.1)
    assert [wsd.factor(step, 100) for step in (0, 4, 9, 50, 80)] == pytest.approx([0.1, 0.5, 1, 1, 1])
    assert [wsd.factor(step, 100) for step in (90, 100, 120)] == pytest.approx([0.55, 0.1, 0.1])
    assert Schedule("linear").factor(25, 100) == pytest.approx(0.75)
    assert Schedule("cosine").factor(50, 100) == pytest.approx(0.5)
    assert Schedule("cosine").factor(25, 100) == pytest.approx((1 + math.cos(math.pi / 4)) / 2)
    assert Schedule("constant", warmup=0.1).factor(99, 100) == 1.0
    assert Schedule("linear", warmup=0.1).factor(4, 100) == Schedule("linear", warmup=10).factor(4, 100) == 0.5


def test_a_run_of_one_step_learns_something() -> None:
    assert Schedule("linear").factor(0, 1) == Schedule("wsd", warmup=0.1).factor(0, 1) == 1.0


@pytest.mark.parametrize(
    ("field", "value"), [("kind", "step"), ("warmup", -1), ("warmup", math.nan), ("decay", 1.5), ("floor", -0.1)]
)
def test_a_wrong_field_is_named(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match="schedule" if field == "kind" else field):
        Schedule(**{field: value})  # type: ignore[arg-type]
