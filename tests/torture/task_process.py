"""`train` of a small real task in a child process, forked so that patches apply there, and killed at chosen moments."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from support.bad_files import sound

from headway.data import store_writer
from headway.errors import HeadwayError
from headway.files import is_present
from headway.jobs import make_plan
from headway.jobs.run_config import Plan
from headway.jobs.run_folder import PLAN, run_file
from headway.jobs.training import run_plan
from headway.jobs.verify import compare
from headway.training import loop

STEPS = 5
REFUSED = 2  # exit code of a run that ends with a HeadwayError
SMALL: dict[str, Any] = {
    "model.width": 16, "model.layers": 1, "model.heads": 2, "model.dropout": 0.1, "batch": 8, "save_every": 1,
    "task.convolutions": 0,
    "eval_every": 2, "log_every": 1, "vocab": 300, "keep": 3, "keep_states": True,
}  # fmt: skip
PROGRESS_BYTES = 500  # so that preparation saves its progress often


class TaskProcess:
    """Starts the run in `folder`, or resumes it if its plan is there. `first` is called in the child."""

    def __init__(self, folder: Path, *, first: Callable[[], object] = lambda: None) -> None:
        undisturbed()  # imports everything before the fork
        context = multiprocessing.get_context("fork")
        self.receiver, sender = context.Pipe(duplex=False)
        self.lines: list[str] = []
        self.error = ""

        def work() -> None:
            torch.set_num_threads(1)
            loop.draw_curves = lambda *_: None  # not needed
            store_writer.PROGRESS_BYTES = PROGRESS_BYTES
            first()
            try:
                run_plan(
                    plan(), folder, resume=is_present(run_file(folder, PLAN)),
                    say=lambda text: sender.send(("line", text)),
                )  # fmt: skip
            except HeadwayError as error:
                sender.send(("error", str(error)))
                sys.exit(REFUSED)
            sys.exit(0)

        self.process = context.Process(target=work, daemon=True)
        self.process.start()
        sender.close()

    def wait(self) -> int:
        """Wait for the child to end. Returns the exit code, negative after a signal."""
        try:
            while True:
                kind, text = self.receiver.recv()
                if kind == "error":
                    self.error = text
                else:
                    self.lines.append(text)
        except EOFError:
            self.process.join(60)
        assert self.process.exitcode is not None, "the process did not end"
        return self.process.exitcode


@cache
def plan() -> Plan:
    temporary = TemporaryDirectory(prefix="torture-data-")
    owner = os.getpid()
    atexit.register(lambda: temporary.cleanup() if os.getpid() == owner else None)
    data = Path(temporary.name) / "x.csv"
    data.write_text(sound("classify", "csv"), encoding="utf-8")
    return make_plan("classify", data, steps=STEPS, settings=SMALL | {"keep_states": True})


@cache
def undisturbed() -> Path:
    """The folder of an uninterrupted run."""
    drawn, loop.draw_curves = loop.draw_curves, lambda *_: None
    try:
        run_plan(plan(), folder := Path(plan().data[0]).with_name("whole"))  # type: ignore[index]
    finally:
        loop.draw_curves = drawn
    return folder


def differences(folder: Path) -> dict[str, str]:
    """What differs between the run in `folder` and the uninterrupted one."""
    return {part: found for part, found in compare(undisturbed(), folder).items() if found is not None}


def finishes(folder: Path, *, first: Callable[[], object] = lambda: None) -> TaskProcess:
    """Assert that the run in `folder` goes on, ends, and equals the uninterrupted one."""
    child = TaskProcess(folder, first=first)
    assert child.wait() == 0, child.error or "the process died"
    assert not (found := differences(folder)), found
    assert not [path for path in folder.rglob("*") if path.name.endswith(".partial")], "remains of a write"
    return child


class Countdown:
    """Kills this process (SIGKILL) at the n-th event."""

    def __init__(self, events: int) -> None:
        self.left = events

    def __call__(self) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, owner: Any, *names: str) -> None:
        """Count every call of these functions, for good; call it in a child only."""
        for name in names:
            original = getattr(owner, name)

            def counted(*args: Any, original: Any = original, **options: Any) -> Any:
                self()
                return original(*args, **options)

            setattr(owner, name, counted)
