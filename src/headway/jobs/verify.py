"""`verify-resume`: is a run that is killed again and again, and resumed, the run that never was?

One run goes through undisturbed. Another of the same plan is killed (SIGKILL: nothing can be tidied) at moments drawn
at random: a step is drawn, and a delay after it, so that the blow falls in a step, an evaluation, a save, or in the
preparations. At the end everything that both runs hold is compared bit by bit.
"""

from __future__ import annotations

import json
import multiprocessing
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from headway.checkpoints import TensorFiles, read_json
from headway.errors import ConfigError, TrainingError
from headway.jobs.run_config import PLAN, Plan
from headway.jobs.training import SCORES, Say, run_plan
from headway.training.protocols import Callback, Status
from headway.training.settings import interval
from headway.training.state import load_latest
from headway.training.state_diff import first_difference, without_clock

Live = Callable[[Plan, Path, Connection], None]
PREPARING = -1  # stands for a step: before the first


class Teller(Callback):
    """Tells the watching process how far a run is."""

    def __init__(self, told: Connection) -> None:
        self.told = told

    def on_start(self, status: Status) -> None:
        self.told.send(status.step)

    def on_step(self, status: Status) -> None:
        self.told.send(status.step)


def live(plan: Plan, folder: Path, told: Connection) -> None:
    """One life of a run: begun, or gone on with, until its end or its death."""
    run_plan(plan, folder, callbacks=[Teller(told)], resume=(folder / "training" / PLAN).exists())


@dataclass(frozen=True)
class Life:
    """What a process that trained has told: the steps it came to, and when."""

    steps: list[int]
    times: list[float]  # the first is its birth, so there is one more
    killed: bool

    @property
    def preparing(self) -> float:
        return self.times[1] - self.times[0]

    @property
    def pause(self) -> float:
        """Seconds between two steps, what is done between them included."""
        return (self.times[-1] - self.times[1]) / max(len(self.times) - 2, 1)


def watch(plan: Plan, folder: Path, live: Live, *, blow: tuple[int, float] | None = None) -> Life:
    """Let a process live until its end, or until `blow`: so many seconds after it has come to a step."""
    context = multiprocessing.get_context("forkserver")  # a process that has imported all and run nothing
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # the second, because an optimiser's first step does
    heard, told = context.Pipe(duplex=False)
    process = context.Process(target=live, args=(plan, folder, told), daemon=True)
    process.start()
    told.close()
    steps: list[int] = []
    times = [time.monotonic()]
    try:
        while True:
            if blow is not None and [PREPARING, *steps][-1] >= blow[0]:
                time.sleep(blow[1])
                process.kill()
                blow = None
            steps.append(heard.recv())
            times.append(time.monotonic())
    except EOFError:
        process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise TrainingError(
            f"{folder}: the run failed by itself (exit code {process.exitcode}); its error stands above"
        )
    return Life(steps, times, killed=process.exitcode != 0)


@dataclass
class Verified:
    seed: int
    steps: int
    lost: list[int] = field(default_factory=list)  # steps made again after each death
    compared: dict[str, str | None] = field(default_factory=dict)  # part → its first difference

    @property
    def same(self) -> bool:
        return not any(self.compared.values())

    def report(self) -> list[str]:
        width = max(map(len, self.compared))
        again = f"; steps made again after each: {', '.join(map(str, self.lost))}" if self.lost else ""
        return [
            f"{self.steps} steps, killed {len(self.lost)} times (seed {self.seed}){again}",
            *(f"  {part:<{width}}  {found or 'the same bits'}" for part, found in self.compared.items()),
            "resuming is exact" if self.same else "the resumed run is not the same",
        ]


def verify_resume(
    plan: Plan, folder: Path, *, kills: int, seed: int, live: Live = live, say: Say = lambda text: None
) -> Verified:
    """Both runs go below `folder`; `live` is what each process does."""
    _refuse_the_clock(plan)
    random, whole, killed = Random(seed), folder / "whole", folder / "killed"
    say("training undisturbed")
    undisturbed = watch(plan, whole, live)
    verified = Verified(seed, undisturbed.steps[-1])
    reached: int | None = None  # by the life before, if it was killed
    for step in [*sorted(random.randint(PREPARING, verified.steps) for _ in range(kills)), None]:
        blow = None
        if step is not None:
            longest = undisturbed.preparing if step == PREPARING else 2 * undisturbed.pause
            blow = step, random.uniform(0, longest)
        life = watch(plan, killed, live, blow=blow)
        begun = life.steps[0] if life.steps else 0
        if reached is not None:
            verified.lost.append(reached - begun)
        reached = (life.steps[-1] if life.steps else 0) if life.killed else None
        say(f"killed at step {reached}, begun at {begun}" if life.killed else f"came to its end, begun at {begun}")
    verified.compared = compare(whole, killed)
    return verified


def compare(left: Path, right: Path) -> dict[str, str | None]:
    """Part by part, where the runs in two folders first differ."""
    one, other = _parts(left), _parts(right)
    return {part: first_difference(one[part], other[part]) for part in one}


def _parts(folder: Path) -> dict[str, Any]:
    training = folder / "training"
    state = load_latest(training).state
    log = (training / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    del state["status"]["elapsed"]
    return {
        "weights": state["model"],
        "optimiser": state["optimizer"],
        "average": state["average"],
        "random streams": state["ranks"],
        "place in the data and the schedule": state["status"],
        "metrics": without_clock([json.loads(line) for line in log]),
        "scores": read_json(training / SCORES),
        "model file": dict(TensorFiles(folder)),
    }


def _refuse_the_clock(plan: Plan) -> None:
    settings = plan.settings()
    if settings.minutes:
        raise ConfigError("minutes: a run measured by the clock never repeats exactly; give steps or epochs")
    if interval("eval_every", settings.eval_every)[0] == "seconds":
        raise ConfigError("eval_every: evaluations by the clock never repeat exactly; give steps or epoch")
