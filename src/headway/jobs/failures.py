"""What keeps a run from starting or going on, and what a run leaves behind when an error ends it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

from headway import tasks
from headway.checkpoints import save_json
from headway.data.store_writer import has_progress
from headway.errors import ConfigError, DiskError, HeadwayError, TrainingError
from headway.files import is_present, open_file, remove
from headway.jobs.run_config import Plan
from headway.jobs.run_folder import EXAMPLES, FAILED, PLAN, SCORES, TRAINING, entries, remove_new, run_file
from headway.jobs.runs import run_state
from headway.training.folder import LOCK
from headway.training.log import require_trackers
from headway.training.state import states


def require_packages(plan: Plan) -> None:
    """Raise if a library is missing that training needs, before any work."""
    kind = tasks.find(plan.task).variant(plan.options)
    for package, extra in kind.packages.items():
        if find_spec(package) is None:
            raise ConfigError(f'task {plan.task} needs the library {package}: pip install "headway[{extra}]"')
    require_trackers(plan.settings().report)


def holds_run(folder: Path) -> bool:
    """Whether there is a run in the folder that has not failed before its first state."""
    has_failed = is_present(run_file(folder, FAILED))
    return is_present(run_file(folder, PLAN)) and not (has_failed and not states(folder / TRAINING))


def refuse_finished(folder: Path) -> None:
    """Raise if there is nothing left to go on from."""
    if is_present(run_file(folder, SCORES)) and not states(folder / TRAINING):
        raise TrainingError(
            f"{folder}: the run has finished and its states were removed, so it cannot be extended. Start another run "
            f"from its model (--start {folder}); a run with --keep-states can be extended"
        )


@contextmanager
def noted_failure(folder: Path, *, is_new: bool) -> Iterator[None]:
    """Context of a run. If an error of Headway's is raised before the first state, what a new run has written is
    removed; it stays if there is a dump to replay, or if the disk is full. Any other error is noted in the folder."""
    if is_new and holds_run(folder):  # it is refused
        yield
        return
    before = {path: entries(path) for path in (folder, folder / TRAINING)}
    with suppress(OSError):  # no folder can be there, which is said later
        for name in [PLAN, FAILED] if is_new else [FAILED]:  # of the try before
            remove(run_file(folder, name))
    try:
        yield
    except Exception as error:
        with suppress(HeadwayError, OSError):
            _note(error, folder, before if is_new else None)
        raise


def _holder(folder: Path) -> str:
    """The id of the process that holds the lock of a run."""
    with open_file(run_file(folder, LOCK), inside=folder) as file:
        return file.read(20).decode(errors="replace")


def _note(error: Exception, folder: Path, before: Mapping[Path, set[str] | None] | None) -> None:
    """`before`: what was in the folders of a new run."""
    if run_state(folder) == "running" and _holder(folder) != str(os.getpid()):  # another process trains there
        return
    is_prepared = is_present(run_file(folder, PLAN))
    keeps = isinstance(error, DiskError) and (is_prepared or has_progress(run_file(folder, EXAMPLES)))
    keeps = keeps or any((folder / TRAINING).glob("autopsy-*"))
    if before is not None and isinstance(error, HeadwayError) and not keeps and not states(folder / TRAINING):
        for path, names in reversed(list(before.items())):
            remove_new(path, names)
    elif is_prepared:
        save_json(run_file(folder, FAILED), {"error": str(error) or type(error).__name__})
