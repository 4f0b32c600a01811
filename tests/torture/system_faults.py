"""Trials: the clock jumps; the file system has no locks."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from torture.child_process import REFUSED, TrainingProcess
from torture.trials import Trial, finishes_undisturbed, intact, outcome, undisturbed

from headway.training.state_diff import first_difference

STEPS = 30
YEARS = 30 * 365 * 86400.0  # seconds
monotonic = time.monotonic


def clock_jumps(random: Random, folder: Path, *, restarts: int = 3) -> Trial:
    """The wall clock jumps by years at every look, the monotonic one restarts with the process as after a reboot, and
    the times of files say nothing about their order."""
    settings = {"steps": STEPS, "save_every": random.randint(1, 4), "keep": 3}
    lost = [0]
    for step in sorted(random.sample(range(1, STEPS), restarts)):
        child = TrainingProcess(folder, first=lambda: _install_clock(random), slow=0.002, **settings)
        child.reach(step)
        if child.kill() != 0:
            lost.append(child.step - intact(folder))
        for path in folder.rglob("*"):
            moment = time.time() + random.uniform(-YEARS, YEARS)
            os.utime(path, (moment, moment))
    assert max(lost) <= settings["save_every"], f"{lost} steps lost where states are {settings['save_every']} apart"
    finishes_undisturbed(folder, **settings)
    return Trial(lost=max(lost), times=len(lost) - 1)


def _install_clock(random: Random) -> None:
    """Patch the clocks for good; call it in a child only."""
    offset = random.uniform(0, 1e6) - monotonic()

    def restarted() -> float:
        return monotonic() + offset

    real = time.time
    time.time = lambda: real() + random.uniform(-YEARS, YEARS)
    time.time_ns = lambda: int(time.time() * 1e9)
    for name, module in list(sys.modules.items()):
        if name.startswith("headway") and getattr(module, "monotonic", None) is monotonic:
            module.monotonic = restarted  # type: ignore[attr-defined]
    time.monotonic = restarted


def without_locks(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": random.randint(1, 4)}
    number = random.choice([errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])

    def first() -> None:
        def flock(*_: object) -> None:
            raise OSError(number, os.strerror(number))

        fcntl.flock = flock  # type: ignore[assignment]

    child = TrainingProcess(folder, first=first, slow=0.02, **settings)
    assert child.reach(random.randint(2, 10)), child.error or "it did not start"
    second = TrainingProcess(folder, first=first, **settings)
    assert second.wait() == REFUSED and str(child.pid) in second.error, "two processes trained in one folder"
    child.kill()
    lost = child.step - intact(folder)
    last = TrainingProcess(folder, first=first, **settings)
    assert last.wait() == 0, last.error
    found = outcome(folder)
    warnings = [entry["warning"] for entry in found["history"] if "warning" in entry]
    assert warnings and all("this file system has no locks" in warning for warning in warnings), warnings
    expected, found = undisturbed(**settings), _without_warnings(found)
    assert (difference := first_difference(found, expected)) is None, difference
    return Trial(lost=lost, note=errno.errorcode[number])


def _without_warnings(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "history": [entry for entry in found["history"] if "warning" not in entry]}
