"""Processes that train or check, each `headway …` with a list of arguments and no shell. A training outlives the server
that started it; its record tells the next one about it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.checkpoints import read_json, save_json
from headway.errors import HeadwayError
from headway.files import open_file
from headway.limited_process import child_environment, python_command
from headway.serving.api_errors import ApiError

RECORD, OUTPUT = ".json", ".log"  # of one process, named like its run
HIDDEN = ("HEADWAY_KEY",)  # variables of the environment that a training does not get
MOST_NAME = 120  # characters


@dataclass
class Record:
    """What is known of the process of one run."""

    pid: int
    born: str  # when the process began, by the system's clock; a process id may be used again
    began: float  # seconds since 1970
    task: str
    stop: bool = False  # it has been sent a signal
    exit: int | None = None

    def is_alive(self) -> bool:
        return self.exit is None and born(self.pid) == self.born


def born(pid: int) -> str:
    """Tells a process from a later one of the same id; "" if there is none, or it has ended and was not waited for."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return "" if Path("/proc/self").exists() or not _exists(pid) else "unknown"
    except OSError:
        return ""
    state, *rest = text.rpartition(")")[2].split()
    return "" if state in ("Z", "X") else rest[18]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def has_open(pid: int, path: Path) -> bool:
    """Whether a process has this very file open. Where that cannot be seen, False."""
    with contextlib.suppress(OSError):
        wanted = os.stat(path)
        for link in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(link), wanted):
                    return True
    return False


class Processes:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    def records(self) -> dict[str, Record]:
        """By the name of the run. A damaged record is left out."""
        found: dict[str, Record] = {}
        for path in sorted(self.folder.glob(f"*{RECORD}")) if self.folder.is_dir() else ():
            with contextlib.suppress(HeadwayError, OSError, TypeError):
                found[_run_name(path)] = Record(**read_json(path, inside=self.folder))
        return found

    def start(self, name: str, arguments: list[str], *, task: str) -> None:
        """Starts `headway ARGUMENTS` for the run. It is no child of a terminal, so that Ctrl-C does not reach it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self._path(name, OUTPUT)
        path.unlink(missing_ok=True)  # also a link, which would be written through
        with open(path, "xb") as output:
            process = subprocess.Popen(
                command(arguments), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=environment(), start_new_session=True, close_fds=True,
            )  # fmt: skip
        record = Record(process.pid, born(process.pid), time.time(), task)
        with self._lock:
            self._save(name, record)
        threading.Thread(target=self._wait, args=(name, process), daemon=True).start()

    def _wait(self, name: str, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with self._lock:
            record = self.records().get(name)
            if record is not None and record.pid == process.pid:
                record.exit = code
                self._save(name, record)

    def stop(self, name: str, *, lock: Path) -> None:
        """Sends SIGTERM to the run's process: the recorded one, or the one that has its lock open."""
        with self._lock:
            record = self.records().get(name)
            if record is not None and record.is_alive():
                record.stop = True
                self._save(name, record)
                os.kill(record.pid, signal.SIGTERM)
                return
        holder = lock_holder(lock)
        if holder is None:
            raise ApiError(409, f"the process of run {name!r:.100} is not on this machine, or not this user's: stop it "
                           "where it was started", param="name")  # fmt: skip
        os.kill(holder, signal.SIGTERM)

    def output(self, name: str, most: int) -> str:
        """The end of what the run's process has printed."""
        path = self._path(name, OUTPUT)
        try:
            with open_file(path, inside=self.folder) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - most))
                return file.read(most).decode(errors="replace")
        except OSError:
            return ""

    def forget(self, name: str) -> None:
        for kind in (RECORD, OUTPUT):
            self._path(name, kind).unlink(missing_ok=True)

    def _save(self, name: str, record: Record) -> None:
        save_json(self._path(name, RECORD), asdict(record))

    def _path(self, name: str, kind: str) -> Path:
        """A run in a folder below has a name with slashes."""
        if len(name.encode()) > MOST_NAME:
            raise ApiError(400, f"the name of the run has more than {MOST_NAME} bytes", param="name")
        return self.folder / (name.replace("%", "%25").replace("/", "%2F") + kind)


def _run_name(path: Path) -> str:
    return path.name.removesuffix(RECORD).replace("%2F", "/").replace("%25", "%")


def lock_holder(lock: Path) -> int | None:
    """The process that a lock names, if it has the lock open: an id alone may be of another process or machine."""
    try:
        with open_file(lock, inside=lock.parent.parent) as file:
            text = file.read(20).decode(errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isascii() and text.isdigit() and int(text) > 1 and has_open(int(text), lock) else None


def command(arguments: list[str]) -> list[str]:
    return python_command("-m", "headway", *arguments)


def environment() -> dict[str, str]:
    """Without the server's keys; and nothing is downloaded because of a request."""
    kept = {name: value for name, value in child_environment().items() if name not in HIDDEN}
    return kept | {"HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}


async def output_of(arguments: list[str], *, seconds: float) -> tuple[int, bytes, bytes]:
    """(exit code, standard output, standard error) of a command, which is killed if it takes too long, or if nobody
    waits for it any more."""
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(*command(arguments), env=environment(), **options)
    try:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
        return process.returncode or 0, out, err
    except TimeoutError:
        raise ApiError(504, f"the command took longer than {seconds:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
