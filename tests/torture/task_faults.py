"""Trials on a real task: SIGKILL inside the final save, inside the preparation of the data and during an evaluation;
deleted states; a disk that is full at any stage."""

from __future__ import annotations

import os
import shutil
import signal
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from support.small_disk import LACKS, NoMountError, small_disk
from torch import nn
from torch.nn.modules import module as modules
from torture.full_disk import STAGES, full_from
from torture.task_process import REFUSED, STEPS, Countdown, TaskProcess, finishes
from torture.trials import NotPossibleError, Trial, intact

from headway.data.checksums import read_checksummed
from headway.data.store_writer import StoreWriter
from headway.jobs import preparation, training
from headway.jobs.run_folder import PLAN, run_file, unfinished
from headway.loading import load
from headway.training import loop
from headway.training.state import states

SAVE_EVENTS = 48  # flushes and renames of a final save
PREPARATION_EVENTS = 96  # examples, flushes and renames before the first step
EVALUATION_EVENTS = 140  # calls of modules in the evaluations of a run


def killed_in_the_final_save(random: Random, folder: Path) -> Trial:
    def first(events: int) -> None:
        fit = training.fit

        def then_count(*args: Any, **options: Any) -> Any:
            result = fit(*args, **options)
            Countdown(events).before(os, "fsync", "replace")
            return result

        training.fit = then_count  # type: ignore[assignment]

    times = 0
    for _ in range(2):
        if TaskProcess(folder, first=partial(first, random.randint(1, SAVE_EVENTS))).wait() != 0:
            times += 1
            load(folder)  # the model is the one before or after, never a mixture
            assert intact(folder) == STEPS
    finishes(folder)
    assert not unfinished(folder)
    return Trial(times=times)


def killed_in_preparation(random: Random, folder: Path) -> Trial:
    def first(events: int) -> None:
        count = Countdown(events)
        count.before(os, "fsync", "replace")
        count.before(StoreWriter, "add")
        prepare = preparation.prepare_run

        def then_stop(*args: Any, **options: Any) -> Any:
            prepared = prepare(*args, **options)
            count.left = 0
            return prepared

        training.prepare_run = then_stop  # type: ignore[assignment]

    times, continued = 0, 0
    for _ in range(3):
        before = _progress(folder)
        if TaskProcess(folder, first=partial(first, random.randint(1, PREPARATION_EVENTS))).wait() == 0:
            break
        times += 1
        assert _progress(folder) >= before, "saved progress was lost"
        continued += before > 0
    finishes(folder)
    return Trial(times=times, note=f"continued {continued} times" if continued else "")


def _progress(folder: Path) -> int:
    """Bytes of prepared examples that a next process need not prepare again."""
    if run_file(folder, PLAN).exists() or run_file(folder, "examples").exists():
        return 1 << 30
    index = read_checksummed(run_file(folder, ".examples-draft") / "progress.json") or {"files": {}}
    return sum(entry["bytes"] for entry in index["files"].values())


def killed_in_an_evaluation(random: Random, folder: Path) -> Trial:
    def first(events: int) -> None:
        count = Countdown(events)

        def hook(module: nn.Module, _: Any) -> None:
            if not module.training:
                count()

        modules.register_module_forward_pre_hook(hook)

    times = 0
    for _ in range(2):
        code = TaskProcess(folder, first=partial(first, random.randint(1, EVALUATION_EVENTS))).wait()
        assert code in (0, -signal.SIGKILL), code
        times += code != 0
        intact(folder)
    finishes(folder)
    return Trial(times=times)


def states_deleted(random: Random, folder: Path) -> Trial:
    """All, the newest, or the oldest, of a finished run or of one that was killed before its final save."""
    finished, which, events = random.random() < 0.5, random.choice(["all", "newest", "oldest"]), random.randint(2, 4)

    def first() -> None:
        if not finished:
            Countdown(events).before(loop, "save_state")

    code = TaskProcess(folder, first=first).wait()
    assert code == (0 if finished else -signal.SIGKILL)
    found = states(folder / "training")
    deleted = {"all": found, "newest": found[:1], "oldest": found[-1:]}[which]
    for path in deleted:
        shutil.rmtree(path)
    note = f"{which}, {'finished' if finished else 'unfinished'}"
    if len(deleted) < len(found) or not finished:
        finishes(folder)
        return Trial(lost=0 if which == "oldest" else 1, note=note)
    kept = {path: path.read_bytes() for path in folder.glob("*.*") if path.is_file()}
    for hidden in ([], ["scores.json"], ["initial.json"]):  # each of the marks alone is enough
        for name in hidden:
            run_file(folder, name).unlink()
        child = TaskProcess(folder)
        refused = child.wait() == REFUSED and "its states" in child.error
        assert refused, f"it began with the finished weights: {child.lines} {child.error}"
    assert kept == {path: path.read_bytes() for path in kept}, "the finished model was changed"
    return Trial(note=note)


def full_at_any_stage(random: Random, folder: Path) -> Trial:
    stage = random.choice([stage for stage in STAGES if stage != "curves"])  # they are not drawn here
    lack = random.choice(LACKS)
    try:
        with small_disk(folder / "disk", kilobytes=1500, inodes=150) as disk:
            run = disk.folder / "run"
            child = TaskProcess(run, first=lambda: full_from(stage, lambda: disk.fill(lack)))
            code = child.wait()
            assert code == REFUSED, f"{stage}, {lack}: exit code {code}"
            assert str(run) in child.error and "bytes are needed" in child.error, child.error
            intact(run)
            disk.free()
            for filler in disk.folder.glob("filler*"):
                filler.unlink()
            finishes(run)
    except NoMountError as reason:
        raise NotPossibleError(str(reason)) from None
    return Trial(note=f"{stage}, {lack}")
