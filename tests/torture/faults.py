"""The faults a run must survive. Each trial causes a real fault and asserts what must hold.

A trial gets a random generator and an empty folder, and returns what was lost. Results are compared bit for bit with an
undisturbed run of the same settings.
"""

from __future__ import annotations

from torture import disk_faults as disks
from torture import rank_faults as ranks
from torture import run_faults as runs
from torture import system_faults as systems
from torture import task_faults as real_runs
from torture import writers
from torture.all_writers import WRITERS
from torture.trials import Fault

FAULTS: dict[str, Fault] = {
    "SIGKILL at random moments": disks.killed_anywhere,
    "SIGKILL inside a save": disks.killed_in_a_save,
    "power cut (simulated: unflushed bytes lost)": disks.power_cut,
    "disk full (2 MB tmpfs)": disks.disk_full,
    "disk or inodes full at a random stage": real_runs.full_at_any_stage,
    "SIGKILL inside the final save": real_runs.killed_in_the_final_save,
    "SIGKILL while data is prepared": real_runs.killed_in_preparation,
    "SIGKILL during an evaluation": real_runs.killed_in_an_evaluation,
    "states deleted": real_runs.states_deleted,
    "clock jumps, and SIGKILL": systems.clock_jumps,
    "file system without locks, and SIGKILL": systems.without_locks,
    "newest state damaged": disks.damaged,
    "every state damaged": disks.all_damaged,
    "SIGTERM or Ctrl-C": runs.signal_once,
    "the same signal twice": runs.signal_twice,
    "data changed before resuming": runs.data_changed,
    "second process on the run folder": runs.second_process,
    "loss or gradient not finite": runs.not_finite,
    "one spiking batch, and SIGKILL": runs.spike,
    "out of memory (RLIMIT_AS)": runs.out_of_memory,
    "SIGKILL 20 times in one run": disks.killed_twenty_times,
    "SIGKILL of one of two ranks": ranks.rank_killed,
    "SIGKILL of a rank, resumed by more or fewer": ranks.ranks_changed,
    "out of memory on one of two ranks": ranks.rank_out_of_memory,
}
AT_ANY_CALL: dict[str, Fault] = {  # two at once, and SIGKILL, at system calls drawn at random
    f"two writers, SIGKILL: {writer.name}": writers.fault(writer) for writer in WRITERS
}
