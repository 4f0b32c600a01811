"""`verify-resume`: checks that a run that is killed and resumed equals the same run without interruption.

One run is not interrupted. Another with the same settings is killed (SIGKILL: no cleanup) at random moments: a step is
drawn, and a delay after it, so that the kill hits a step, an evaluation, a save, or the preparation of the data. At the
end both runs are compared bit by bit. `replay` repeats a training step that gave non-finite values, from its dump.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from headway.checkpoints import TensorFiles
from headway.distributed import pick_device
from headway.errors import ConfigError, TrainingError
from headway.files import is_present, open_file
from headway.jobs.preparation import Say
from headway.jobs.run_config import Plan, open_data, saved_plan
from headway.jobs.run_folder import PLAN, SCORES, read_run_json, run_file
from headway.jobs.training import learner, resume, run_plan
from headway.limited_process import start_process
from headway.loading import load
from headway.training import step_dump
from headway.training.protocols import Callback, Status
from headway.training.settings import interval
from headway.training.state import load_latest
from headway.training.state_diff import first_difference, without_clock

TrainProcess = Callable[[Plan, Path, Connection], None]
PREPARING = -1  # in place of a step: before the first


class StepReporter(Callback):
    """Sends the step of a run to the parent process."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def on_start(self, status: Status) -> None:
        self.pipe.send(status.step)

    def on_step(self, status: Status) -> None:
        self.pipe.send(status.step)


def train_or_resume(plan: Plan, folder: Path, pipe: Connection) -> None:
    """The work of one process: starts the run, or resumes it, and trains to the end unless killed."""
    if is_present(run_file(folder, PLAN)):
        resume(folder, callbacks=[StepReporter(pipe)])
    else:
        run_plan(plan, folder, callbacks=[StepReporter(pipe)])


@dataclass(frozen=True)
class ProcessLog:
    """The steps that a process reported, and when."""

    steps: list[int]
    times: list[float]  # one more than steps: the first is the start of the process
    killed: bool

    @property
    def preparing(self) -> float:
        return self.times[1] - self.times[0]

    @property
    def pause(self) -> float:
        """Mean seconds between two steps, evaluations and saves included."""
        return (self.times[-1] - self.times[1]) / max(len(self.times) - 2, 1)


def run_process(
    plan: Plan, folder: Path, train_or_resume: TrainProcess, *, kill_at: tuple[int, float] | None = None
) -> ProcessLog:
    """Runs a process to its end, or kills it at `kill_at`: (step, seconds after that step)."""
    receiver, sender = multiprocessing.Pipe(duplex=False)
    preload = [__name__, "torch._dynamo"]  # the second is imported by an optimiser's first step
    process = start_process(train_or_resume, plan, folder, sender, preload=preload)
    sender.close()
    steps: list[int] = []
    times = [time.monotonic()]
    try:
        while True:
            if kill_at is not None and [PREPARING, *steps][-1] >= kill_at[0]:
                time.sleep(kill_at[1])
                process.kill()
                kill_at = None
            steps.append(receiver.recv())
            times.append(time.monotonic())
    except EOFError:
        process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise TrainingError(f"{folder}: the run failed (exit code {process.exitcode}); its error is shown above")
    return ProcessLog(steps, times, killed=process.exitcode != 0)


@dataclass
class Verified:
    seed: int
    steps: int
    lost: list[int] = field(default_factory=list)  # steps repeated after each kill
    compared: dict[str, str | None] = field(default_factory=dict)  # part → its first difference

    @property
    def same(self) -> bool:
        return not any(self.compared.values())

    def report(self) -> list[str]:
        width = max(map(len, self.compared))
        again = f"; steps repeated after each: {', '.join(map(str, self.lost))}" if self.lost else ""
        return [
            f"{self.steps} steps, killed {len(self.lost)} times (seed {self.seed}){again}",
            *(f"  {part:<{width}}  {found or 'identical'}" for part, found in self.compared.items()),
            "resuming is exact" if self.same else "the resumed run differs",
        ]


def verify_resume(
    plan: Plan,
    folder: Path,
    *,
    kills: int,
    seed: int,
    train_or_resume: TrainProcess = train_or_resume,
    say: Say = lambda text: None,
) -> Verified:
    """Both runs are written below `folder`; `train_or_resume` is the work of each process."""
    _require_repeatable(plan)
    plan = replace(plan, train=plan.train | {"keep_states": True})  # they are compared
    open_data(plan)  # what is wrong with the files is said before a process is started
    random, whole, killed = Random(seed), folder / "whole", folder / "killed"
    say("training without interruption")
    uninterrupted = run_process(plan, whole, train_or_resume)
    verified = Verified(seed, uninterrupted.steps[-1])
    reached: int | None = None  # step of the previous process, if it was killed
    for step in [*sorted(random.randint(PREPARING, verified.steps) for _ in range(kills)), None]:
        kill_at = None
        if step is not None:
            longest = uninterrupted.preparing if step == PREPARING else 2 * uninterrupted.pause
            kill_at = step, random.uniform(0, longest)
        log = run_process(plan, killed, train_or_resume, kill_at=kill_at)
        first = log.steps[0] if log.steps else 0
        if reached is not None:
            verified.lost.append(reached - first)
        reached = (log.steps[-1] if log.steps else 0) if log.killed else None
        say(f"killed at step {reached}, started at {first}" if log.killed else f"finished, started at {first}")
    verified.compared = compare(whole, killed)
    return verified


def compare(left: Path, right: Path) -> dict[str, str | None]:
    """The first difference between the runs in two folders, part by part."""
    one, other = _parts(left), _parts(right)
    return {part: first_difference(one[part], other[part]) for part in one}


def _parts(folder: Path) -> dict[str, Any]:
    training = folder / "training"
    state = load_latest(training).state
    with open_file(training / "metrics.jsonl", inside=folder) as file:
        log = file.read().splitlines()
    del state["status"]["elapsed"]
    return {
        "weights": state["model"],
        "optimiser": state["optimizer"],
        "average": state["average"],
        "random streams": state["ranks"],
        "place in the data and the schedule": state["status"],
        "metrics": without_clock([json.loads(line) for line in log]),
        "scores": read_run_json(folder, SCORES),
        "model file": dict(TensorFiles(folder)),
    }


def _require_repeatable(plan: Plan) -> None:
    settings = plan.settings()
    if settings.minutes:
        raise ConfigError("minutes: a run limited by time does not repeat exactly; give steps or epochs")
    if interval("eval_every", settings.eval_every)[0] == "seconds":
        raise ConfigError("eval_every: evaluations by time do not repeat exactly; give steps or epoch")


def replay(folder: str | Path) -> step_dump.ReplayResult:
    """`folder` is RUN/training/autopsy-STEP; the model and task are those of the run."""
    path = Path(folder)
    run = path.absolute().parent.parent
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; give RUN/training/autopsy-STEP")
    plan, bundle = saved_plan(run), load(run)
    model = learner(plan, bundle, lambda text: None)
    return step_dump.replay(path, model, loss=bundle.find_task().loss, device=pick_device(plan.settings().device))
