"""Trials: SIGKILL at any moment, power cuts, a full disk, damaged files."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from torture.child_process import REFUSED, TrainingProcess
from torture.disk import Disk
from torture.trials import NotPossibleError, Trial, finishes_undisturbed, intact

from headway.training.state import load_latest, states

STEPS = 40
POWER_MOMENTS = 150  # about as many as a run of twelve states has


def killed_anywhere(random: Random, folder: Path, *, kills: int = 5) -> Trial:
    settings = {"steps": STEPS, "save_every": random.randint(1, 4), "keep": random.randint(1, 2)}
    lost = [0]
    for step in sorted(random.randrange(STEPS) for _ in range(kills)):
        child = TrainingProcess(folder, **settings)
        child.reach(step)
        time.sleep(random.uniform(0, 0.1))
        if child.kill() != 0:  # unless it ended before
            lost.append(child.step - intact(folder))
    assert max(lost) <= settings["save_every"], f"{lost} steps lost where states are {settings['save_every']} apart"
    finishes_undisturbed(folder, **settings)
    return Trial(lost=max(lost), times=len(lost) - 1)


def killed_twenty_times(random: Random, folder: Path) -> Trial:
    return killed_anywhere(random, folder, kills=20)


def killed_in_a_save(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 1, "keep": random.randint(1, 2)}
    child = TrainingProcess(folder, **settings)
    child.reach(random.randint(2, 20))
    deadline = time.monotonic() + 20
    before = set(folder.glob("training/*"))
    while not set(folder.glob("training/*state-*")) - before and time.monotonic() < deadline:
        pass
    time.sleep(random.uniform(0, 0.005))
    assert child.kill() == -signal.SIGKILL
    half = bool(list(folder.glob("training/*.partial")))
    lost = child.step - intact(folder)
    assert lost <= 1
    finishes_undisturbed(folder, **settings)
    return Trial(lost=lost, note="half a state left" if half else "")


def power_cut(random: Random, folder: Path) -> Trial:
    settings = {"steps": 12, "save_every": 1, "keep": random.randint(1, 2)}
    disk = Disk(folder, moment=random.randint(1, POWER_MOMENTS), random=random)
    child = TrainingProcess(folder, first=disk.install, **settings)
    if child.wait() == 0:
        return Trial(times=0)
    lost = child.step - intact(folder)
    assert lost <= 1
    finishes_undisturbed(folder, **settings)
    return Trial(lost=lost)


def disk_full(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 2}
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        raise NotPossibleError(f"mounting a small disk is not allowed ({mounted.stderr.strip()})")
    child = TrainingProcess(folder, slow=0.01, **settings)
    try:
        assert child.reach(random.randint(3, 20))
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as file:  # fill the disk until the run fails
            while child.process.is_alive():
                with suppress(OSError):
                    file.write(bytes(4096))
        assert child.wait() == REFUSED, "a full disk was not noticed"
        assert "bytes are needed" in child.error and str(folder) in child.error, child.error
        lost = child.step - intact(folder)
        assert lost <= 3  # two between states, and the one whose log line did not fit
        filler.unlink()
        finishes_undisturbed(folder, **settings)
        return Trial(lost=lost)
    finally:
        child.process.kill()
        child.process.join()
        subprocess.run(["umount", folder], check=True)


def damaged(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 3}
    child = TrainingProcess(folder, slow=0.01, **settings)
    child.reach(random.randint(8, 30))
    child.kill()
    newest, before = states(folder / "training")[:2]
    damage = _damage(random, random.choice(sorted(newest.iterdir())))
    loaded = load_latest(folder / "training")
    assert loaded.path == before, f"{damage} went unnoticed"
    assert loaded.warnings and newest.name in loaded.warnings[0] and before.name in loaded.warnings[0]
    lost = child.step - int(before.name[6:])
    assert lost <= 6
    finishes_undisturbed(folder, **settings)
    return Trial(lost=lost, note=damage)


def all_damaged(random: Random, folder: Path) -> Trial:
    settings = {"steps": 6, "save_every": 2}
    assert TrainingProcess(folder, **settings).wait() == 0
    for path in states(folder / "training"):
        _damage(random, random.choice(sorted(path.iterdir())))
    child = TrainingProcess(folder, **settings)
    assert child.wait() == REFUSED and "every saved state is damaged" in child.error, "a damaged state was loaded"
    return Trial()


def _damage(random: Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    damage = random.choice(["flipped bit", "truncated", "zero-filled", "removed"])
    if damage == "flipped bit":
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif damage == "truncated":
        del data[random.randrange(len(data)) :]
    elif damage == "zero-filled":
        data = bytearray(len(data))
    path.write_bytes(data)
    if damage == "removed":
        path.unlink()
    return f"{path.name} {damage}"
