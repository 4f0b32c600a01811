"""The runs under one directory, by name. A request names an entry of this table; it never names a path.

The run folder is the truth about a run. What the folder cannot know - that a process has been started and prepares its
data, or how it failed - is in a record of the process, kept in `.studio` beside the runs, so that another server, or
this one after a restart, shows the same.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headway.errors import ConfigError, closest
from headway.files import remove_leftovers
from headway.jobs.runs import RunSummary, is_run, run_folders, run_summary
from headway.serving.api_errors import ApiError
from headway.serving.runs_data import STUDIO, UPLOADS
from headway.serving.runs_process import Processes, Record
from headway.tasks import TASKS

DEFAULT = "runs"  # in the current folder
MOST_RUNS = 500  # in one directory
ACTIVE = ("starting", "running", "stopping")
RESUMABLE = ("stopped", "dead", "failed", "finished")
STOP_CODES = (-2, -15, 130, 143)  # exit codes of a process that a signal has stopped
OUTPUT_BYTES = 16 * 1024  # of what a training has printed


@dataclass(frozen=True)
class RunEntry:
    """`summary` is None while the folder holds no run: the process prepares its data, or has failed before."""

    name: str
    folder: Path
    summary: RunSummary | None
    record: Record | None

    @property
    def state(self) -> str:
        """One of starting, running, stopping, finished, stopped, dead, failed, unreadable."""
        alive = self.record is not None and self.record.is_alive()
        stopping = self.record is not None and self.record.stop
        found = None if self.summary is None else self.summary.state
        if found == "running" or alive:
            began = found is not None and (found == "running" or bool(self.summary and self.summary.step))
            return "stopping" if stopping and alive else "running" if began else "starting"
        if found is None or found == "stopped":
            code = None if self.record is None else self.record.exit
            if code not in (None, 0) and code not in STOP_CODES:
                return "failed"
            return "dead" if found is None and code is None else "stopped"
        return found

    @property
    def is_active(self) -> bool:
        return self.state in ACTIVE

    @property
    def task(self) -> str:
        return self.summary.task if self.summary is not None else self.record.task if self.record is not None else ""

    def facts(self) -> dict[str, Any]:
        """As JSON for the page."""
        summary, state = self.summary, self.state
        out: dict[str, Any] = {"name": self.name, "state": state, "task": self.task}
        out["stoppable"] = state in ("starting", "running")
        out["resumable"] = summary is not None and state in RESUMABLE and self.task in TASKS
        if summary is not None:
            whole = summary.to_dict()
            kept = ("data", "recipe", "parameters", "length", "step", "seconds", "scores", "is_final", "baseline",
                    "updated", "problem")  # fmt: skip
            out |= {name: whole[name] for name in kept}
            out["start"] = None if summary.start is None else Path(summary.start).name
            out["progress"] = progress(summary)
        elif self.record is not None:
            when = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(self.record.began))
            out |= {"step": 0, "seconds": 0.0, "scores": {}, "length": {}, "data": [], "updated": when}
        return out


def progress(summary: RunSummary) -> float | None:
    """The share of the planned length that is done; None where epochs were planned, which the log's end lacks."""
    if summary.state == "finished":
        return 1.0
    shares = {"steps": summary.step, "minutes": summary.seconds / 60}
    found = [shares[name] / most for name, most in summary.length.items() if name in shares and most > 0]
    return min(1.0, max(found)) if found else None


class RunTable:
    def __init__(self, folder: Path, *, train: bool) -> None:
        """`train`: whether trainings may be started, stopped and resumed, and data uploaded."""
        self.folder, self.train = folder, train
        self.processes = Processes(folder / STUDIO)
        self.turn = asyncio.Lock()  # of the requests that change something, so that one thread at most waits
        remove_leftovers(folder / STUDIO)
        remove_leftovers(folder / UPLOADS)

    def all(self) -> list[RunEntry]:
        """Every run, the newest first."""
        records = self.processes.records()
        found = [self._run(name, path, records.pop(name, None)) for name, path in self._folders().items()]
        found += [RunEntry(name, self.folder / name, None, record) for name, record in records.items()]
        return sorted(found, key=lambda run: (not run.is_active, -_changed(run), run.name))

    def find(self, name: str) -> RunEntry:
        folders, records = self._folders(), self.processes.records()
        if name in folders:
            return self._run(name, folders[name], records.get(name))
        if name in records:
            return RunEntry(name, self.folder / name, None, records[name])
        close = closest(name, [*folders, *records])
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ApiError(404, f"there is no run {name!r:.100}{hint}", param="name", code="run_not_found")

    def _run(self, name: str, folder: Path, record: Record | None) -> RunEntry:
        return RunEntry(name, folder, run_summary(folder), record)

    def _folders(self) -> dict[str, Path]:
        found: dict[str, Path] = {}
        if is_run(self.folder) or not self.folder.is_dir():
            return found
        for path in run_folders(self.folder):
            name = path.relative_to(self.folder).as_posix()
            if name.isprintable() and len(found) < MOST_RUNS:
                found[name] = path
        return found


def _changed(run: RunEntry) -> float:
    own = 0.0 if run.record is None else run.record.began
    return max(own, 0.0 if run.summary is None else run.summary.updated)


def run_table(folder: Path | None, *, train: bool | None, local: bool, guarded: bool) -> RunTable | None:
    """The runs that a server shows. `local`: nobody but this machine reaches it; `guarded`: local, or with a key.
    Without a folder, `runs` is shown if it exists and the server is guarded. Training is off by default unless the
    server is local: whoever holds a key for its models need not be allowed to use the machine for hours."""
    found = folder if folder is not None else Path(DEFAULT) if guarded and Path(DEFAULT).is_dir() else None
    if found is None:
        if train:
            raise ConfigError("--train: name the folder of the runs, as --runs DIR")
        return None
    if found.exists() and not found.is_dir():
        raise ConfigError(f"--runs {found}: not a folder")
    allowed = local if train is None else train
    if not allowed and not found.is_dir():
        raise ConfigError(f"--runs {found}: no such folder")
    return RunTable(found.resolve(), train=allowed)
