"""Every protection taken away in turn: the trial of its fault must then fail, or it would prove nothing."""

import random
import shutil
import signal
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from torture import faults_of_disks as disks
from torture import faults_of_ranks as ranks
from torture import faults_of_runs as runs
from torture import trials
from torture.lives import Life

from headway.training import loop, resume, rng, state, step
from headway.training.distributed import World
from headway.training.loss_spikes import Spikes
from headway.training.signals import Interrupt
from headway.training.state import write_folder


@pytest.fixture(autouse=True)
def no_memory_of_other_runs():
    yield
    for kept in (trials.undisturbed, ranks.undisturbed, ranks.alone):
        kept.cache_clear()


def fails(fault: trials.Fault, folder: Path, *, match: str, rounds: int = 1) -> None:
    """Within so many rounds the trial fails, for the reason expected."""
    with pytest.raises(AssertionError, match=match):
        for round_ in range(rounds):
            (folder / str(round_)).mkdir()
            fault(random.Random(round_), folder / str(round_))


def write_in_place(target: Path, content: dict) -> None:
    """A state as one would first write it: at its place, file by file."""
    with TemporaryDirectory() as aside:
        write_folder(Path(aside) / "state", content)
        target.mkdir(parents=True)
        for file in sorted((Path(aside) / "state").iterdir()):
            shutil.copy(file, target)
            time.sleep(0.005)


def test_states_written_in_place_are_found_half_written(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "write_folder", write_in_place)
    fails(disks.killed_in_a_save, tmp_path, match="manifest", rounds=5)


def test_without_flushing_a_power_cut_leaves_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "flush", lambda path: None)
    fails(disks.power_cut, tmp_path, match="checksum|unreadable", rounds=10)


def test_without_random_streams_resuming_is_not_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(rng, "restore", lambda streams: None)
    fails(disks.killed_anywhere, tmp_path, match="values differ", rounds=2)


def test_without_checksums_damage_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "verify", lambda path: None)
    monkeypatch.setattr(disks, "_harm", lambda stream, path: flip(path.parent / "model.safetensors"))
    fails(disks.damaged, tmp_path, match="went unnoticed")


def test_without_checksums_a_run_goes_on_from_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "verify", lambda path: None)
    monkeypatch.setattr(disks, "_harm", lambda stream, path: flip(path.parent / "model.safetensors"))
    fails(disks.all_damaged, tmp_path, match="damage was taken for a state")


def flip(path: Path) -> str:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    return "a flipped bit"


def test_without_disk_errors_a_full_disk_is_a_crash(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "disk_errors", lambda *args, **options: nullcontext())
    try:
        fails(disks.disk_full, tmp_path, match="not noticed|bytes are needed")
    except trials.NotPossibleError as reason:
        pytest.skip(str(reason))


def test_without_a_listener_a_signal_loses_the_steps_since_the_last_state(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "listening", lambda: nullcontext(Interrupt()))
    fails(runs.asked_to_stop, tmp_path, match="exit code")


def test_a_listener_that_keeps_listening_cannot_be_stopped_at_once(tmp_path, monkeypatch):
    @contextmanager
    def deaf():
        interrupt = Interrupt()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: setattr(interrupt, "signal", signal.Signals(number)))
        yield interrupt

    monkeypatch.setattr(loop, "listening", deaf)
    monkeypatch.setattr(runs, "LONG", 1.0)
    fails(runs.asked_twice, tmp_path, match="asked twice, it went on")


def test_without_the_fingerprint_other_data_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "_data", lambda saved, now: None)
    fails(runs.data_changed, tmp_path, match="other data was taken")


def test_without_the_lock_two_processes_train_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "locked", lambda training: nullcontext())
    fails(runs.second_process, tmp_path, match="two processes trained")


def test_without_the_look_at_the_loss_the_run_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "isfinite", lambda value: True)
    monkeypatch.setattr(loop, "require_finite", lambda model, step: None)
    fails(runs.not_finite, tmp_path, match="the run went on")


def test_weights_that_overflowed_are_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "isfinite", lambda value: True)
    life = Life(tmp_path, steps=6, save_every=1, optimizer="adamw", lr=1e38, warmup=0)
    assert life.end() == 2 and "left weights that are not finite" in life.error


def test_without_the_judge_a_spike_is_learnt(tmp_path, monkeypatch):
    monkeypatch.setattr(Spikes, "judge", lambda self, norm: None)
    fails(runs.spike, tmp_path, match=r"what was said of a spike: \[\]")


def test_a_forgotten_median_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Spikes, "load", lambda self, state: None)
    fails(runs.spike, tmp_path, match="spike|differ|entries", rounds=3)


def test_without_halving_the_run_dies(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "is_out_of_memory", lambda error: False)
    fails(runs.out_of_memory, tmp_path, match="where smaller micro-batches do not help")


def test_with_the_first_ranks_random_stream_for_all_resuming_is_not_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(World, "gather", lambda self, value: [self.share(value)] * self.size)
    fails(ranks.rank_killed, tmp_path, match="values differ", rounds=2)


def test_a_gradient_that_depends_on_the_number_of_ranks_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(step.Stepper, "_weight", lambda self, count: self.factor / count)
    fails(ranks.ranks_changed, tmp_path, match="norm differs")


def test_ranks_that_do_not_find_the_note_run_out_of_memory_again(tmp_path, monkeypatch):
    monkeypatch.setattr(step.Stepper, "take_up_split", lambda self: [])
    fails(ranks.rank_out_of_memory, tmp_path, match="it did not go on")
