"""Signals to real processes: an orderly stop, an immediate one, SIGKILL during a save."""

import itertools
import multiprocessing
import os
import random
import runpy
import signal
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from headway import files
from headway.errors import TrainingError
from headway.training import loop, state
from headway.training.state import load_latest, load_state, states
from headway.training.state_diff import first_difference

toy = SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("toy_run.py"))))


@pytest.fixture(scope="module", autouse=True)
def small_and_plain():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as the script does: sums in another order would not be the same bits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "draw_curves", lambda *_: None)
        yield
    torch.set_num_threads(threads)


class StepReporter:
    """Sends the step to the parent process, and sleeps so that a signal can arrive during a step."""

    def __init__(self, sender: Connection, slow: float) -> None:
        self.sender, self.slow = sender, slow

    def on_step(self, status) -> None:
        self.sender.send(status.step)
        time.sleep(self.slow)


def work(sender: Connection, folder: Path, width: int, slow: float, settings: dict) -> None:
    torch.set_num_threads(1)
    resume = bool(states(folder / "training"))
    model = toy.ToyModel(width=width)
    sys.exit(
        toy.toy_fit(folder, model=model, resume=resume, callbacks=[StepReporter(sender, slow)], **settings).exit_code
    )


class Child:
    def __init__(self, folder: Path, *, width: int = 8, slow: float = 0.0, **settings) -> None:
        context = multiprocessing.get_context("fork")  # a real process, without the seconds a new interpreter takes
        self.receiver, sender = context.Pipe(duplex=False)
        self.process = context.Process(target=work, args=(sender, folder, width, slow, settings))
        self.process.start()
        sender.close()

    def reached(self, step: int) -> None:
        while self.receiver.recv() != step:
            pass

    def ended(self) -> int:
        self.process.join(20)
        return self.process.exitcode


@pytest.fixture
def start():
    """Train in another process, which is killed at the end of the test."""
    children = []

    def begin(*args, **options) -> Child:
        children.append(Child(*args, **options))
        return children[-1]

    yield begin
    for child in children:
        child.process.kill()
        child.process.join()


def final_state(folder: Path) -> dict:
    loaded = load_state(states(folder / "training")[0])
    return {part: loaded[part] for part in ("model", "optimizer", "ranks")}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("whole")
    toy.toy_fit(folder)
    return final_state(folder)


def same(left, right) -> bool:
    return first_difference(left, right) is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_run_resumes_exactly(tmp_path, start, uninterrupted, number):
    child = start(tmp_path, slow=0.3)
    child.reached(2)
    with pytest.raises(TrainingError, match=f"process {child.process.pid} is training in this folder"):
        toy.toy_fit(tmp_path)
    os.kill(child.process.pid, number)
    assert child.ended() == 128 + number
    assert 2 <= load_latest(tmp_path / "training").state["status"]["step"] < 14
    toy.toy_fit(tmp_path, resume=True)
    assert same(final_state(tmp_path), uninterrupted)


def test_a_second_signal_stops_at_once(tmp_path, start):
    child = start(tmp_path, slow=30, save_every=1)
    child.reached(1)
    os.kill(child.process.pid, signal.SIGTERM)
    time.sleep(0.3)
    assert child.process.is_alive()  # the step is still being made
    os.kill(child.process.pid, signal.SIGTERM)
    assert child.ended() == -signal.SIGTERM
    assert states(tmp_path / "training") == []
    toy.toy_fit(tmp_path, steps=2)  # nothing is in the way of a new run


def dies_in_a_save(sender: Connection, folder: Path, instant: int, settings: dict) -> None:
    """Train, and die at the n-th call that saving makes; a file being written is left half written."""
    instants = itertools.count(1)

    def dying(action):
        def act(*args, **kwargs):
            found = action(*args, **kwargs)
            if next(instants) == instant:
                if action is save_file:
                    os.truncate(args[1], args[1].stat().st_size // 2)
                os.kill(os.getpid(), signal.SIGKILL)
            return found

        return act

    for module, name in ((state, "write_safetensors"), (state, "sha256"), (files, "fsync"), (files, "remove")):
        setattr(module, name, dying(getattr(module, name)))
    work(sender, folder, 8, 0.0, settings)


def test_sigkill_during_a_save(tmp_path):
    options = {"save_every": 1}
    context = multiprocessing.get_context("fork")
    training = tmp_path / "training"
    instants = random.Random(3)
    halves = 0
    for _ in range(12):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=dies_in_a_save, args=(sender, tmp_path, instants.randrange(1, 30), options))
        process.start()
        sender.close()
        process.join(20)
        assert process.exitcode == -signal.SIGKILL
        halves += bool(list(training.glob("*.partial")))
        last = 0
        while receiver.poll():
            try:
                last = receiver.recv()
            except EOFError:
                break
        saved = load_latest(training).state["status"]["step"] if states(training) else 0
        assert saved >= last - 1  # at most one interval is lost
    assert 0 < saved < 14 and halves >= 3  # and it did die in the middle
    toy.toy_fit(tmp_path, model=toy.ToyModel(seed=1), resume=True, **options)
    toy.toy_fit(tmp_path / "whole", **options)
    assert same(final_state(tmp_path), final_state(tmp_path / "whole"))
    assert not list(training.glob("*.partial"))
