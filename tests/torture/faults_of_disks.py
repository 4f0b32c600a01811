"""Trials: death at any moment, and all that can happen to what is on the disk."""

from __future__ import annotations

import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from random import Random

from torture.disk import Disk
from torture.lives import REFUSED, Life
from torture.trials import NotPossibleError, Trial, intact, same

from headway.training.state import load_latest, states

STEPS = 40
POWER_MOMENTS = 150  # about as many as a run of twelve states has


def killed_anywhere(random: Random, folder: Path, *, kills: int = 5) -> Trial:
    settings = {"steps": STEPS, "save_every": random.randint(1, 4), "keep": random.randint(1, 2)}
    lost = [0]
    for step in sorted(random.randrange(STEPS) for _ in range(kills)):
        life = Life(folder, **settings)
        life.reach(step)
        time.sleep(random.uniform(0, 0.1))
        if life.kill() != 0:  # it may have come to its end before
            lost.append(life.step - intact(folder))
    assert max(lost) <= settings["save_every"], f"{lost} steps lost where states are {settings['save_every']} apart"
    same(folder, **settings)
    return Trial(lost=max(lost), times=len(lost) - 1)


def killed_twenty_times(random: Random, folder: Path) -> Trial:
    return killed_anywhere(random, folder, kills=20)


def killed_in_a_save(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 1, "keep": random.randint(1, 2)}
    life = Life(folder, **settings)
    life.reach(random.randint(2, 20))
    deadline = time.monotonic() + 20
    begun = set(folder.glob("training/*"))
    while not set(folder.glob("training/state-*")) - begun and time.monotonic() < deadline:
        pass
    time.sleep(random.uniform(0, 0.005))
    assert life.kill() == -signal.SIGKILL
    half = bool(list(folder.glob("training/*.partial")))
    lost = life.step - intact(folder)
    assert lost <= 1
    same(folder, **settings)
    return Trial(lost=lost, note="half a state left" if half else "")


def power_cut(random: Random, folder: Path) -> Trial:
    settings = {"steps": 12, "save_every": 1, "keep": random.randint(1, 2)}
    disk = Disk(folder, moment=random.randint(1, POWER_MOMENTS), random=random)
    life = Life(folder, first=disk.install, **settings)
    if life.end() == 0:
        return Trial(times=0)
    lost = life.step - intact(folder)
    assert lost <= 1
    same(folder, **settings)
    return Trial(lost=lost)


def disk_full(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 2}
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        raise NotPossibleError(f"mounting a small disk is not allowed ({mounted.stderr.strip()})")
    life = Life(folder, slow=0.01, **settings)
    try:
        assert life.reach(random.randint(3, 20))
        filler = folder / "filler"
        with filler.open("wb", buffering=0) as file:  # something else eats whatever is free, until the run gives up
            while life.process.is_alive():
                with suppress(OSError):
                    file.write(bytes(4096))
        assert life.end() == REFUSED, "a full disk was not noticed"
        assert "bytes are needed" in life.error and str(folder) in life.error, life.error
        lost = life.step - intact(folder)
        assert lost <= 3  # two between states, and the one whose line of the log found no room
        filler.unlink()
        same(folder, **settings)
        return Trial(lost=lost)
    finally:
        life.process.kill()
        life.process.join()
        subprocess.run(["umount", folder], check=True)


def damaged(random: Random, folder: Path) -> Trial:
    settings = {"steps": STEPS, "save_every": 3}
    life = Life(folder, slow=0.01, **settings)
    life.reach(random.randint(8, 30))
    life.kill()
    newest, before = states(folder / "training")[:2]
    harm = _harm(random, random.choice(sorted(newest.iterdir())))
    loaded = load_latest(folder / "training")
    assert loaded.path == before, f"{harm} went unnoticed"
    assert loaded.warnings and newest.name in loaded.warnings[0] and before.name in loaded.warnings[0]
    lost = life.step - int(before.name[6:])
    assert lost <= 6
    same(folder, **settings)
    return Trial(lost=lost, note=harm)


def all_damaged(random: Random, folder: Path) -> Trial:
    settings = {"steps": 6, "save_every": 2}
    assert Life(folder, **settings).end() == 0
    for path in states(folder / "training"):
        _harm(random, random.choice(sorted(path.iterdir())))
    life = Life(folder, **settings)
    assert life.end() == REFUSED and "every saved state is damaged" in life.error, "damage was taken for a state"
    return Trial()


def _harm(random: Random, path: Path) -> str:
    data = bytearray(path.read_bytes())
    harm = random.choice(["flipped bit", "truncated", "zero-filled", "removed"])
    if harm == "flipped bit":
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)
    elif harm == "truncated":
        del data[random.randrange(len(data)) :]
    elif harm == "zero-filled":
        data = bytearray(len(data))
    path.write_bytes(data)
    if harm == "removed":
        path.unlink()
    return f"{path.name} {harm}"
