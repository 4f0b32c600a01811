"""What a run's folder says about the run: its settings, where it stands, its scores and its curves.

Nothing here loads a model. Folders are untrusted: a file that is damaged, or not what it should be, is reported as the
`problem` of its run, and numbers that are none are left out.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from headway.checkpoints import TensorFiles
from headway.errors import HeadwayError, InputError
from headway.files import is_present, open_file
from headway.jobs.run_folder import BASELINES, FAILED, PLAN, SCORES, TRAINING, read_run_json, run_file
from headway.locks import is_locked
from headway.training.folder import LOCK, METRICS, Entry, parse_entry
from headway.training.settings import LENGTHS

DEEPEST = 4  # levels of folders below the given one in which runs are looked for
MOST_BYTES = 2**28  # of a log that is read
LINE_BYTES = 2**20  # of a line of a log; a longer one is no entry
TAIL = 2**18  # bytes at the end of a log that tell where a run stands

LOSS = "training loss"  # the name of its curve
TASK_METRICS = {  # task -> its metric, by kind of target where it has several; Task.metric, without importing the tasks
    "generate": ("loss",),
    "chat": ("loss",),
    "translate": ("bleu",),
    "summarize": ("rouge1",),
    "classify": ("accuracy", "micro_f1", "mae"),
    "tag": ("f1",),
    "answer": ("f1",),
    "fill": ("loss",),
    "embed": ("accuracy",),
    "vectors": ("analogies", "loss"),
    "classify-image": ("accuracy",),
    "detect": ("ap50",),
    "transcribe": ("wer",),
    "draw": ("loss",),
}

State = Literal["running", "finished", "stopped", "failed", "dead", "unreadable"]


@dataclass(frozen=True)
class RunSummary:
    """One run. `state` is

    - running: a process holds the lock of its folder
    - dead: its process ended without removing the lock: killed, or the machine stopped; it can be resumed
    - finished: it has come to its end; its folder holds the trained model
    - failed: an error ended it, which `problem` says; it can be resumed
    - stopped: it ended before that, by a signal, or has not begun; it can be resumed
    - unreadable: `problem` says which file is damaged
    """

    folder: Path
    state: State
    task: str = ""
    data: tuple[str, ...] = ()  # names of files; empty: the built-in data
    start: str | None = None  # the model that it was fine-tuned from; None: trained from scratch
    recipe: str = ""
    parameters: int | None = None
    length: dict[str, float] = field(default_factory=dict)  # that was planned: steps, epochs or minutes
    step: int = 0
    seconds: float = 0.0  # of training
    scores: dict[str, float] = field(
        default_factory=dict
    )  # of the last evaluation; the first is the one that the run is judged by
    is_final: bool = False  # whether the scores are of all held-out examples, at the end of the run
    baseline: dict[str, float] = field(default_factory=dict)  # name -> the same score, of cheap models
    updated: float = 0.0  # time of the last change, in seconds since 1970
    problem: str = ""

    @property
    def score(self) -> tuple[str, float] | None:
        """Name and value of the score that the run is judged by: the one that the user named, or the task's metric."""
        return next(iter(self.scores.items()), None)

    def to_dict(self) -> dict[str, Any]:
        when = datetime.fromtimestamp(self.updated, UTC).isoformat(timespec="seconds") if self.updated else None
        return {**asdict(self), "folder": str(self.folder), "data": list(self.data), "updated": when}


def list_runs(folder: str | Path) -> list[RunSummary]:
    """The runs in a folder and in the folders below it, that of the last change first. Links to folders are not
    followed."""
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root}: no such folder")
    found = [run_summary(path) for path in run_folders(root)]
    return sorted(found, key=lambda run: (-run.updated, str(run.folder)))


def run_folders(folder: Path, *, depth: int = DEEPEST) -> Iterator[Path]:
    """The folder itself if it holds a run, and otherwise those below it that do."""
    if is_run(folder):
        yield folder
        return
    if not depth:
        return
    try:
        below = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:  # not ours to read
        return
    for name in below:
        if not name.startswith("."):
            yield from run_folders(folder / name, depth=depth - 1)


def is_run(folder: str | Path) -> bool:
    return is_present(run_file(folder, PLAN))


def run_summary(folder: str | Path) -> RunSummary:
    """The run in this folder. Raises an InputError if the folder holds none."""
    folder = Path(folder)
    if not is_run(folder):
        raise InputError(f"{folder}: holds no run (no {TRAINING}/{PLAN}); give a folder that `headway train` wrote")
    updated = max((_changed(run_file(folder, name)) for name in (PLAN, SCORES, METRICS, FAILED)), default=0.0)
    try:
        return _summary(folder, updated=updated)
    except (HeadwayError, OSError) as error:
        return RunSummary(folder, "unreadable", updated=updated, problem=str(error))


def _summary(folder: Path, *, updated: float) -> RunSummary:
    plan = read_run_json(folder, PLAN) or {}
    final = read_run_json(folder, SCORES)
    step, seconds, logged = 0, 0.0, dict[str, float]()
    for entry in log_entries(folder, last=TAIL):
        step = max(step, _whole(entry.get("step")))
        seconds = max(seconds, _numbers(entry).get("seconds", 0.0))
        logged = _numbers(entry.get("scores")) or logged
    state = run_state(folder)
    is_final = final is not None and state == "finished"
    scores = _judged_first(_numbers(final) if is_final else logged, plan)
    return RunSummary(
        folder,
        state,
        task=_text(plan.get("task")),
        data=tuple(Path(_text(name)).name for name in _list(plan.get("data"))),
        start=_text(plan.get("start")) or None,
        recipe=_text(plan.get("recipe")),
        parameters=_parameters(folder),
        length={name: value for name, value in _numbers(plan.get("train")).items() if name in LENGTHS and value},
        step=step,
        seconds=seconds,
        scores=scores,
        is_final=is_final,
        baseline=_baselines(folder, next(iter(scores), "")) if is_final else {},
        updated=updated,
        problem=_text((read_run_json(folder, FAILED) or {}).get("error")) if state == "failed" else "",
    )


def named_score(plan: Mapping[str, Any]) -> str:
    """The score that the user named for the run (--score); empty if there is none. A score that was chosen for the data
    decides which weights are kept, and the run is judged by its task's metric."""
    train = plan.get("train")
    if not isinstance(train, Mapping) or "train.score" not in _list(plan.get("given")):
        return ""
    return _text(train.get("score"))


def _judged_first(scores: dict[str, float], plan: Mapping[str, Any]) -> dict[str, float]:
    names = (named_score(plan), *TASK_METRICS.get(_text(plan.get("task")), ()))
    judged = next((name for name in names if name in scores), None)
    return scores if judged is None else {judged: scores[judged], **scores}


def run_state(folder: str | Path) -> State:
    """Where the run in this folder stands, by its lock and its scores."""
    lock = run_file(folder, LOCK)
    if is_present(lock):
        return "running" if is_locked(lock) else "dead"
    if is_present(run_file(folder, SCORES)):
        return "finished"
    return "failed" if is_present(run_file(folder, FAILED)) else "stopped"


def log_entries(folder: str | Path, *, last: int | None = None) -> Iterator[Entry]:
    """The entries of the run's log, or those in its `last` bytes. Damaged lines are skipped, also one that is just
    being written."""
    path = run_file(folder, METRICS)
    if not is_present(path):
        return
    with open_file(path, inside=folder) as file:
        size = os.fstat(file.fileno()).st_size
        start = max(0, size - min(last or MOST_BYTES, MOST_BYTES))
        file.seek(start)
        if start:
            file.readline(LINE_BYTES)  # the rest of a line
        while line := file.readline(LINE_BYTES):
            entry = parse_entry(line)
            if entry is not None:
                yield entry


def curves(folder: str | Path) -> dict[str, list[tuple[int, float]]]:
    """(step, value) of the training loss and of each score of the evaluations, which is named "held-out …"."""
    out: dict[str, list[tuple[int, float]]] = {}
    for entry in log_entries(folder):
        scores = _numbers(entry.get("scores"))
        values = {f"held-out {name}": value for name, value in scores.items()} if scores else _loss(entry)
        for name, value in values.items():
            out.setdefault(name, []).append((_whole(entry.get("step")), value))
    return out


def _loss(entry: Entry) -> dict[str, float]:
    value = entry.get("loss")
    return {LOSS: value} if value is not None and _is_number(value) else {}


def _parameters(folder: Path) -> int | None:
    """Numbers in the weight files; None if there are none yet. Weights that a file holds twice count twice."""
    try:
        files = TensorFiles(folder)
    except HeadwayError:
        return None
    return sum(math.prod(files.info(name).shape) for name in files.names)


def _baselines(folder: Path, score: str) -> dict[str, float]:
    """The score of each baseline that the run saved."""
    found = _list((read_run_json(folder, BASELINES) or {}).get("baselines"))
    pairs = [(each.get("name"), _numbers(each.get("scores")).get(score)) for each in found if isinstance(each, dict)]
    return {name: value for name, value in pairs if isinstance(name, str) and value is not None}


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _numbers(values: Any) -> dict[str, float]:
    """Those entries of an object that are finite numbers."""
    items = values.items() if isinstance(values, Mapping) else ()
    return {name: value for name, value in items if _is_number(value)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53 else 0


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
