"""Two processes that write the same at once, and processes killed at every system call that changes the disk.

A child process is forked that counts such calls (Python's audit events, and flushes) and is killed or paused before the
n-th. While it is paused, another one writes. Whatever a process reported as saved must be there, whole.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from torture.trials import Trial

from headway import files
from headway.errors import HeadwayError
from headway.files import atomic_write
from headway.serving import runs_data
from headway.serving.api_errors import ApiError

CHANGES = {
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod",
}  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
WAIT = 0.3  # seconds to wait for a lock whose holder is paused
PAUSED, SAVED, REFUSED = "paused", "saved", "refused"
FIRST, SECOND = "first", "second"


@dataclass(frozen=True)
class Writer:
    """`write` saves a text in a folder and returns where; `read` gives the text that is whole there, None for nothing,
    and fails for a mixture. `old`: there is a text before. `is_new`: only one of two may succeed; `apart`: each is
    saved in a place of its own. `in_turn`: a process that was paused before it held a lock writes after the other."""

    name: str
    write: Callable[[Path, str], str]
    read: Callable[[Path, str], str | None]
    old: bool = False
    is_new: bool = False
    apart: bool = False
    in_turn: bool = False


class Child:
    """A process that calls `work`. It is killed, or pauses, before the n-th call that changes the disk."""

    def __init__(self, work: Callable[[], str], *, at: int = 0, kill: bool = False) -> None:
        self.reports, report = os.pipe()
        go, self.going = os.pipe()
        self.pid = os.fork()
        if self.pid:
            os.close(report)
            os.close(go)
            return
        code = 1
        try:
            files.LOCK_SECONDS = runs_data.LOCK_SECONDS = WAIT
            files._tidied.clear()
            counted = _count_changes(at, kill, report, go)
            try:
                said = [SAVED, work(), counted[0]]
            except (HeadwayError, OSError, ApiError) as error:
                said = [REFUSED, str(error), counted[0]]
            os.write(report, json.dumps(said).encode() + b"\n")
            code = 0
        except BaseException as error:
            os.write(report, json.dumps(["crashed", repr(error), 0]).encode() + b"\n")
        finally:
            os._exit(code)

    def report(self) -> list[Any] | None:
        """What it says next; None if it was killed."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self.reports], [], [], 60)
            assert ready, "a writer hangs"
            if not (more := os.read(self.reports, 1000)):
                return None
            line += more
        found = json.loads(line)
        assert found[0] != "crashed", found[1]
        return found

    def go_on(self) -> None:
        os.write(self.going, b"g")

    def end(self) -> None:
        for descriptor in (self.reports, self.going):
            os.close(descriptor)
        os.waitpid(self.pid, 0)


def _count_changes(at: int, kill: bool, report: int, go: int) -> list[int]:
    sys.dont_write_bytecode = True
    counted = [0]

    def change() -> None:
        counted[0] += 1
        if counted[0] == at:
            if kill:
                os.kill(os.getpid(), signal.SIGKILL)
            os.write(report, json.dumps([PAUSED]).encode() + b"\n")
            os.read(go, 1)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES):
            change()

    fsync = os.fsync

    def flush(descriptor: Any) -> None:
        change()
        fsync(descriptor)

    os.fsync = flush
    sys.addaudithook(hook)
    return counted


def calls(writer: Writer, folder: Path) -> int:
    """How many calls that change the disk the writer makes."""
    (report,) = _alone(writer, folder, FIRST)
    return int(report[2])


def killed(writer: Writer, folder: Path, at: int) -> None:
    """A process is killed; another one then writes; what it left is removed."""
    _prepare(writer, folder)
    child = Child(lambda: writer.write(folder, FIRST), at=at, kill=True)
    done = child.report()
    child.end()
    where = f"{writer.name}, killed before call {at}"
    if done is None:
        told = writer.read(folder, "")
        assert writer.apart or told in (None, "old", FIRST), f"{where}: {told!a:.40} is there"
    (second,) = _alone(writer, folder, SECOND)
    if second[0] == SAVED:
        assert writer.read(folder, second[1]) == SECOND, f"{where}: what the next process saved is not there"
    else:
        assert writer.is_new and writer.read(folder, "") == FIRST, f"{where}: the next process is refused: {second[1]}"
    _nothing_left(folder, where)


def paused(writer: Writer, folder: Path, at: int) -> None:
    """A process pauses, another one writes, and the first goes on."""
    _prepare(writer, folder)
    child = Child(lambda: writer.write(folder, FIRST), at=at)
    report = child.report()
    assert report is not None
    other = None
    if report[0] == PAUSED:
        (other,) = _alone(writer, folder, SECOND)
        child.go_on()
        report = child.report()
        assert report is not None
    child.end()
    where = f"{writer.name}, paused before call {at}"
    told = {FIRST: report} | ({SECOND: other} if other is not None else {})
    saved = {text: str(said[1]) for text, said in told.items() if said[0] == SAVED}
    assert saved, f"{where}: nobody could write: {told}"
    if writer.apart:
        for text, place in saved.items():
            assert writer.read(folder, place) == text, f"{where}: what the {text} was told is saved is not there"
    else:
        last = SECOND if SECOND in saved else FIRST
        if writer.in_turn and FIRST in saved:
            last = FIRST
        assert writer.read(folder, saved[last]) == last, f"{where}: what the {last} was told is saved is not there"
        assert not (writer.is_new and len(saved) > 1), f"{where}: both were told that they made a new file"
    _nothing_left(folder, where)


def _prepare(writer: Writer, folder: Path) -> None:
    folder.mkdir(parents=True)
    if writer.old:
        assert _alone(writer, folder, "old")[0][0] == SAVED


def _alone(writer: Writer, folder: Path, text: str) -> list[list[Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    child = Child(lambda: writer.write(folder, text))
    found = child.report()
    child.end()
    assert found is not None
    return [found]


def _nothing_left(folder: Path, where: str) -> None:
    """After the next start of a process that writes to each folder."""

    def write() -> str:
        for each in {path.parent for path in folder.rglob("*")}:
            if files.LEFTOVER.fullmatch(each.name) is None:
                with atomic_write(each / "next") as partial:
                    partial.write_bytes(b"")
        return ""

    child = Child(write)
    child.report()
    child.end()
    left = [path for path in folder.rglob("*") if path.name.startswith(".headway-") or path.name.endswith(".partial")]
    assert not left, f"{where}: {left[0].name} is left"


def sweep(
    writer: Writer, folder: Path, points: Iterable[int], *, ways: Iterable[Callable[..., None]] = (killed, paused)
) -> int:
    """Both faults at the given calls; returns how often."""
    times = 0
    for at in points:
        for way in ways:
            way(writer, folder / f"{way.__name__}-{at}", at)
            times += 1
    return times


def fault(writer: Writer) -> Callable[[Random, Path], Trial]:
    """As a fault of `make torture`: a call drawn at random."""

    def trial(random: Random, folder: Path) -> Trial:
        whole = calls(writer, folder / "whole")
        return Trial(times=sweep(writer, folder, random.sample(range(1, whole + 1), min(8, whole))))

    return trial
