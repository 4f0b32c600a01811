"""N steps = k steps, stopped, resumed: bit for bit. And each part of the state is shown to be needed for that."""

import os
import runpy
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from headway.errors import TrainingError
from headway.training import loop, resume
from headway.training.optim import build_optimizers
from headway.training.state import load_state, states
from headway.training.state_diff import first_difference, without_clock

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))
STEPS = 14  # two epochs of 6 batches and the beginning of a third
RUN = {"steps": STEPS, "accumulate": 2, "average": 0.9, "eval_every": 5, "log_every": 3, "warmup": 3, "decay": 0.5}
SCORED = {"evaluate": toy.toy_evaluate, "score": "loss", "higher_is_better": False}


class StopAt:
    """Sends this process a signal while a certain step is being made."""

    def __init__(self, step: int, number: int = signal.SIGTERM) -> None:
        self.step, self.number = step, number

    def on_step(self, status) -> None:
        if status.step == self.step:
            os.kill(os.getpid(), self.number)


def same(left, right) -> bool:
    return first_difference(left, right) is None


def everything(folder: Path, result) -> dict:
    """All that must be equal at the end of two runs."""
    state = load_state(states(folder / "training")[0])
    state["status"].pop("elapsed")
    del state["journal"]  # the length of a log whose lines hold times
    return {**state, "history": without_clock(result.history), "best": result.best}


@pytest.fixture(scope="module", autouse=True)
def small_and_plain():
    """One thread is the fastest for so small a model, and nobody looks at these runs' curves."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda *_: None)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("whole")
    model = toy.ToyModel()
    result = toy.toy_fit(folder, model=model, **RUN, **SCORED)
    assert (result.steps, result.epochs, result.stopped_by, result.exit_code) == (STEPS, 2, "steps", 0)
    return {**everything(folder, result), "kept": {k: v.clone() for k, v in model.state_dict().items()}}


def stopped_and_resumed(folder: Path, k: int) -> dict:
    stopped = toy.toy_fit(folder, callbacks=[StopAt(k)], **RUN, **SCORED)
    assert (stopped.steps, stopped.stopped_by, stopped.exit_code) == (k, "SIGTERM", 143)
    torch.manual_seed(999)
    model = toy.ToyModel(seed=1)  # resuming depends on nothing of the new process
    result = toy.toy_fit(folder, model=model, resume=True, **RUN, **SCORED)
    return {**everything(folder, result), "kept": model.state_dict()}


@pytest.mark.parametrize("k", range(1, STEPS))
def test_resume_is_bit_exact(tmp_path, uninterrupted, k):
    again = stopped_and_resumed(tmp_path, k)
    assert [part for part in uninterrupted if not same(uninterrupted[part], again[part])] == []


def without_rng(state: dict) -> None:
    torch.manual_seed(0)
    state["ranks"][0]["rng"]["torch"] = torch.get_rng_state()


def without_position(state: dict) -> None:
    state["status"]["position"] = 0


def without_optimizer(state: dict) -> None:
    state["optimizer"] = build_optimizers(toy.ToyModel(), kind="muon", lr=0.01).state_dict()


def without_step(state: dict) -> None:
    state["status"]["step"] -= 1


def without_average(state: dict) -> None:
    state["average"] = {"updates": 0, "mean": {name: 0 * mean for name, mean in state["average"]["mean"].items()}}


@pytest.mark.parametrize(
    "drop", [None, without_rng, without_position, without_optimizer, without_step, without_average]
)
def test_every_part_of_the_state_matters(tmp_path, uninterrupted, monkeypatch, drop):
    load = resume.load_latest

    def lossy(folder):
        loaded = load(folder)
        if drop is not None:
            drop(loaded.state)
        return loaded

    monkeypatch.setattr(resume, "load_latest", lossy)
    again = stopped_and_resumed(tmp_path, 8)
    assert (again["average"] is not None) and same(uninterrupted["average"], again["average"]) == (drop is None)
    if drop is not without_average:
        assert same(uninterrupted["model"], again["model"]) == (drop is None)


def test_resume_of_a_finished_run_changes_nothing(tmp_path):
    first = toy.ToyModel()
    toy.toy_fit(tmp_path, model=first, **RUN, **SCORED)
    again = toy.ToyModel(seed=3)
    result = toy.toy_fit(tmp_path, model=again, resume=True, **RUN, **SCORED)
    assert result.steps == STEPS and same(dict(first.state_dict()), dict(again.state_dict()))


def test_a_run_in_minutes_keeps_its_clock(tmp_path):
    short = {"minutes": 1.0, "log_every": 5}
    stopped = toy.toy_fit(tmp_path, callbacks=[StopAt(5, signal.SIGINT)], **short)
    assert (stopped.stopped_by, stopped.exit_code) == ("SIGINT", 130)
    state = load_state(states(tmp_path / "training")[0])
    assert 0 < state["status"]["elapsed"] == stopped.seconds < 60

    class Clock:
        def on_start(self, status) -> None:
            assert status.elapsed == stopped.seconds

    resumed = toy.toy_fit(tmp_path, resume=True, callbacks=[Clock(), StopAt(9)], **short)
    assert resumed.steps == 9 and resumed.seconds > stopped.seconds


def test_a_run_in_minutes_ends_in_time(tmp_path):
    result = toy.toy_fit(tmp_path, minutes=0.01)
    assert result.stopped_by == "minutes" and 0.6 <= result.seconds < 5


def test_changed_data_is_refused_by_name(tmp_path):
    toy.toy_fit(tmp_path, callbacks=[StopAt(3)])
    changed = toy.ToySource(fingerprint="toy.tsv 9999")
    with pytest.raises(TrainingError, match=r"data changed.*toy\.tsv 1234.*toy\.tsv 9999"):
        toy.toy_fit(tmp_path, source=changed, resume=True)


def test_changed_settings_are_refused_or_reported(tmp_path):
    toy.toy_fit(tmp_path, callbacks=[StopAt(3)])
    with pytest.raises(TrainingError, match="seed was 0 and is now 1"):
        toy.toy_fit(tmp_path, resume=True, seed=1)
    other = toy.toy_fit(tmp_path, resume=True, clip=2.0)
    assert any("clip was 1.0 and is now 2.0" in entry.get("warning", "") for entry in other.history)


def test_another_model_is_refused(tmp_path):
    toy.toy_fit(tmp_path, callbacks=[StopAt(3)])
    with pytest.raises(TrainingError, match="does not fit this model"):
        toy.toy_fit(tmp_path, model=toy.ToyModel(width=12), resume=True)
    untied = toy.ToyModel()
    untied.out.weight = torch.nn.Parameter(untied.out.weight.detach().clone())
    with pytest.raises(TrainingError, match="tied weights"):
        toy.toy_fit(tmp_path, model=untied, resume=True)


def test_a_new_run_does_not_overwrite_an_old_one(tmp_path):
    with pytest.raises(TrainingError, match="no state to resume"):
        toy.toy_fit(tmp_path, resume=True)
    toy.toy_fit(tmp_path, steps=2)
    with pytest.raises(TrainingError, match="earlier run"):
        toy.toy_fit(tmp_path, steps=2)


def test_handlers_are_given_back(tmp_path):
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    toy.toy_fit(tmp_path, callbacks=[StopAt(3)])
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
