"""Negative controls: with a protection disabled, the trial of its fault must fail."""

import random
import shutil
import signal
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from torture import disk_faults as disks
from torture import rank_faults as ranks
from torture import run_faults as runs
from torture import system_faults as systems
from torture import task_faults as real_runs
from torture import trials
from torture.child_process import TrainingProcess

from headway import bundle, files, locks
from headway.checkpoints import save, saved, text_files
from headway.data import store_writer
from headway.distributed import World
from headway.errors import CheckpointError
from headway.jobs import training
from headway.training import log, loop, resume, rng, state, step
from headway.training.loss_spikes import SpikeFilter
from headway.training.signals import Interrupt
from headway.training.state import write_state


@pytest.fixture(autouse=True)
def clear_caches():
    yield
    for cached in (trials.undisturbed, ranks.undisturbed, ranks.single_process):
        cached.cache_clear()


def fails(fault: trials.Fault, folder: Path, *, match: str, rounds: int = 1) -> None:
    """Assert that the trial fails within some rounds, for the expected reason."""
    with pytest.raises(AssertionError, match=match):
        for round_ in range(rounds):
            (folder / str(round_)).mkdir()
            fault(random.Random(round_), folder / str(round_))


def write_in_place(target: Path, content: dict) -> None:
    """Write a state without atomicity: in place, file by file."""
    with TemporaryDirectory() as temporary:
        write_state(Path(temporary) / "state", content)
        target.mkdir(parents=True)
        for file in sorted((Path(temporary) / "state").iterdir()):
            shutil.copy(file, target)
            time.sleep(0.005)


def test_states_written_in_place_are_found_half_written(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "write_state", write_in_place)
    fails(disks.killed_in_a_save, tmp_path, match="manifest", rounds=5)


def test_without_flushing_a_power_cut_leaves_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fsync", lambda path: None)
    fails(disks.power_cut, tmp_path, match="checksum|not valid JSON", rounds=10)


def test_without_random_states_resuming_is_not_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(rng, "restore", lambda states: None)
    fails(disks.killed_anywhere, tmp_path, match="values differ", rounds=2)


def test_without_checksums_damage_is_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "verify", lambda path: None)
    monkeypatch.setattr(disks, "_damage", lambda stream, path: flip(path.parent / "model.safetensors"))
    fails(disks.damaged, tmp_path, match="went unnoticed")


def test_without_checksums_a_run_resumes_from_damage(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "verify", lambda path: None)
    monkeypatch.setattr(disks, "_damage", lambda stream, path: flip(path.parent / "model.safetensors"))
    fails(disks.all_damaged, tmp_path, match="a damaged state was loaded")


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


def test_without_disk_errors_a_full_disk_at_a_stage_is_a_crash(tmp_path, monkeypatch):
    for module in (save, saved, text_files):
        monkeypatch.setattr(module, "disk_errors", lambda *args, **options: nullcontext())
    monkeypatch.setattr(real_runs, "STAGES", {"final save": real_runs.STAGES["final save"]})
    try:
        fails(real_runs.full_at_any_stage, tmp_path, match="final save, .*: exit code 1")
    except trials.NotPossibleError as reason:
        pytest.skip(str(reason))


def test_a_model_written_in_place_is_found_half_written(tmp_path, monkeypatch):
    @contextmanager
    def in_place(folder):
        with TemporaryDirectory() as work:
            yield Path(work)
            folder.mkdir(parents=True, exist_ok=True)
            for file in sorted(Path(work).iterdir()):
                (folder / file.name).unlink(missing_ok=True)  # the old file is mapped into memory
                (folder / file.name).write_bytes(b"half")
                files.fsync(folder / file.name)
                shutil.copy(file, folder / file.name)

    monkeypatch.setattr(bundle, "save_folder", in_place)
    with pytest.raises((AssertionError, CheckpointError)):
        for round_ in range(20):
            (tmp_path / str(round_)).mkdir()
            real_runs.killed_in_the_final_save(random.Random(round_), tmp_path / str(round_))


@pytest.mark.slow
def test_progress_that_is_not_checked_is_continued_wrongly(tmp_path, monkeypatch):
    monkeypatch.setattr(store_writer, "_truncate_files", lambda folder, index: True)
    monkeypatch.setattr(store_writer, "is_intact", lambda folder, index: True)
    fails(real_runs.killed_in_preparation, tmp_path, match="progress file of an earlier attempt was damaged", rounds=12)


def test_a_log_that_is_not_truncated_has_an_evaluation_twice(tmp_path, monkeypatch):
    truncate = log.MetricsLog._truncate
    monkeypatch.setattr(
        log.MetricsLog, "_truncate", lambda self, path, length: truncate(self, path, max(length, size_of(path)))
    )
    fails(real_runs.killed_in_an_evaluation, tmp_path, match="metrics|model", rounds=4)


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def test_without_the_check_a_run_begins_with_finished_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "require_initial_weights", lambda folder: None)
    fails(real_runs.states_deleted, tmp_path, match="it began with the finished weights", rounds=8)


def test_states_in_the_order_of_their_files_times_are_noticed(tmp_path, monkeypatch):
    def by_time(folder):
        return sorted(ordered(folder), key=lambda path: path.stat().st_mtime)

    ordered = state.states
    for module in (state, trials, loop):
        monkeypatch.setattr(module, "states", by_time)
    fails(systems.clock_jumps, tmp_path, match="lost|differ|states", rounds=4)


def test_without_a_substitute_for_locks_the_run_does_not_start(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "NO_LOCKS", ())
    fails(systems.without_locks, tmp_path, match="cannot be written|did not start")


def test_without_a_handler_a_signal_loses_the_steps_since_the_last_state(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "catch_signals", lambda: nullcontext(Interrupt()))
    fails(runs.signal_once, tmp_path, match="exit code")


def test_a_handler_that_is_not_restored_blocks_the_second_signal(tmp_path, monkeypatch):
    @contextmanager
    def never_restored():
        interrupt = Interrupt()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: setattr(interrupt, "signal", signal.Signals(number)))
        yield interrupt

    monkeypatch.setattr(loop, "catch_signals", never_restored)
    monkeypatch.setattr(runs, "LONG", 1.0)
    fails(runs.signal_twice, tmp_path, match="continued after the second signal")


def test_without_the_fingerprint_changed_data_is_accepted(tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "_check_data", lambda saved, now: None)
    fails(runs.data_changed, tmp_path, match="changed data was not noticed")


def test_without_the_lock_two_processes_train_in_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "lock_folder", lambda training: nullcontext())
    fails(runs.second_process, tmp_path, match="two processes trained")


def test_without_the_check_of_the_loss_the_run_continues(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "isfinite", lambda value: True)
    monkeypatch.setattr(loop, "require_finite", lambda model, step: None)
    fails(runs.not_finite, tmp_path, match="the run continued")


def test_weights_that_overflowed_are_not_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "isfinite", lambda value: True)
    child = TrainingProcess(tmp_path, steps=6, save_every=1, optimizer="adamw", lr=1e38, warmup=0)
    assert child.wait() == 2 and "made weights non-finite" in child.error


def test_without_the_check_a_spike_is_trained_on(tmp_path, monkeypatch):
    monkeypatch.setattr(SpikeFilter, "check", lambda self, norm: None)
    fails(runs.spike, tmp_path, match=r"warnings about a spike: \[\]")


def test_a_lost_median_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(SpikeFilter, "load", lambda self, state: None)
    fails(runs.spike, tmp_path, match="spike|differ|entries", rounds=3)


def test_without_halving_the_run_dies(tmp_path, monkeypatch):
    monkeypatch.setattr(step, "is_out_of_memory", lambda error: False)
    fails(runs.out_of_memory, tmp_path, match="where smaller micro-batches do not help")


@pytest.mark.slow
def test_with_rank_0s_random_state_for_all_resuming_is_not_exact(tmp_path, monkeypatch):
    monkeypatch.setattr(World, "all_gather", lambda self, value: [self.broadcast(value)] * self.size)
    fails(ranks.rank_killed, tmp_path, match="values differ", rounds=2)


@pytest.mark.slow
def test_a_gradient_that_depends_on_the_number_of_ranks_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(step.Stepper, "_weight", lambda self, count: self.factor / count)
    fails(ranks.ranks_changed, tmp_path, match="norm differs")


@pytest.mark.slow
def test_without_the_saved_split_ranks_run_out_of_memory_again(tmp_path, monkeypatch):
    monkeypatch.setattr(step.Stepper, "load_saved_split", lambda self: [])
    fails(ranks.rank_out_of_memory, tmp_path, match="it did not continue")
