"""Memory of a step from a few of its examples: compared with the allocations that PyTorch counts in real steps."""

from __future__ import annotations

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from support import step_memory
from support.step_memory import Tokens, loss

from headway.models.build import build
from headway.models.init import initialise
from headway.models.recipes import Size, decoder
from headway.training import loop, step_trial
from headway.training.allocations import FREED, AllocationLog, AllocationSegment, live_peak
from headway.training.settings import Settings
from headway.training.step_trial import StepProfile, StepTrial

CPU = torch.device("cpu")
ROWS, LENGTH, VOCAB = 8, 64, 512
CASES: dict[str, dict[str, Any]] = {
    "muon": {},
    "adamw, EMA": {"optimizer": "adamw", "average": 0.9},
    "micro-batches": {"accumulate": 4},
    "checkpointing": {"checkpoint_activations": True},
}


def model() -> torch.nn.Module:
    built = build(decoder(Size(width=64, layers=3, heads=4), "modern", vocab=VOCAB, context=LENGTH))
    initialise(built, "modern", seed=0)
    return built


def settings(**given: Any) -> Settings:
    return Settings(**{"steps": 3, "batch": ROWS, "save_every": 0, "eval_every": 0, "device": "cpu", **given})


def profile(given: Settings) -> StepProfile:
    trial, data = StepTrial(copy.deepcopy(model()), loss=loss, settings=given, device=CPU), Tokens(1, LENGTH, VOCAB)
    with trial.active():
        return trial.profile([0, 0], load=lambda rows: data.load(rows, 0))


@pytest.mark.parametrize("case", CASES, ids=list(CASES))
def test_tensors_at_the_peak_of_a_run(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings(**CASES[case])
    found = profile(given).memory(ROWS // given.accumulate, passes=given.accumulate)
    monkeypatch.setattr(loop, "draw_curves", lambda *_: None)
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as measured:
        trained = model()
        loop.fit(trained, Tokens(ROWS, LENGTH, VOCAB), loss=loss, settings=given, folder=tmp_path)
    assert found.total == pytest.approx(step_memory.peak(measured), rel=0.05)
    assert found.growth > found.gradients + found.optimizer + found.activations  # and the gaps of the heap
    if case == "checkpointing":  # control: the profile is not that of another run
        plain = profile(settings()).memory(ROWS, passes=1)
        assert plain.activations > 1.3 * found.activations


def test_eight_examples_from_two_and_three() -> None:
    """Every tensor has a fixed size or one in proportion to the examples, so nothing is lost."""
    given, data = settings(), Tokens(1, LENGTH, VOCAB)
    trial = StepTrial(model(), loss=loss, settings=given, device=CPU)
    with trial.active():
        small = trial.profile([0] * 2, load=lambda rows: data.load(rows, 0))
    trial = StepTrial(model(), loss=loss, settings=given, device=CPU)
    with trial.active():
        large = trial.profile([0] * 8, load=lambda rows: data.load(rows, 0))
    for passes in (1, 2):
        assert small.memory(8, passes=passes) == large.memory(8, passes=passes)


def test_other_operations_are_extrapolated_by_their_peaks() -> None:
    one = AllocationSegment([(0, 100), (1, 40), (1, FREED)], 2)
    two = AllocationSegment([(0, 100), (1, 30), (2, 50), (1, FREED), (2, FREED)], 3)
    assert live_peak(one.scaled(two, 1).events) == live_peak(two.events) == 180
    assert live_peak(one.scaled(two, 3).events) == 100 + 40 + 3 * 40


def test_no_size_is_below_zero() -> None:
    """Examples that are collated one by one have their own lengths."""
    one, two = AllocationSegment([(0, 80), (1, 8), (1, FREED)], 2), AllocationSegment([(0, 80), (1, 80), (1, FREED)], 2)
    assert two.scaled(one, 15).events == [(0, 80), (1, 0), (1, FREED)]


def test_the_random_state_stays() -> None:
    given, data, tried = settings(), Tokens(1, LENGTH, VOCAB), model()
    before = torch.random.get_rng_state()
    trial = StepTrial(tried, loss=loss, settings=given, device=CPU)
    with trial.active():
        torch.rand(3)
        trial.profile([0], load=lambda rows: data.load(rows, 0))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_storages_are_counted_once_and_when_they_are_freed() -> None:
    weight = torch.zeros(10)
    log = AllocationLog([weight])

    def work() -> torch.Tensor:
        view = weight.view(2, 5)  # no storage
        first = view + 1
        second = first.t()
        del first
        return second * 2

    with log:
        segment, kept = log.recorded(work)
    assert segment.events == [(0, 40), (1, 40), (0, FREED)]
    assert segment.kept == {1: kept.nbytes}


def test_other_processes_on_the_cores_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread gets a third of a core: its own time counts, and the slowdown is known."""
    now = iter(range(100))
    monkeypatch.setattr(step_trial.time, "perf_counter", lambda: 3.0 * next(now))
    own = iter(range(100))
    monkeypatch.setattr(step_trial.time, "thread_time", lambda: 1.0 * next(own))
    clock = step_trial._Clock(CPU)
    assert [clock.seconds(lambda: None) for _ in range(3)] == [1.0, 1.0, 1.0]
    assert clock.slowdown == 3.0
