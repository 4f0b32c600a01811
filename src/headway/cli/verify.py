"""`verify-resume` and `replay`."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.app import app
from headway.cli.options import Data, Set, TaskName, reads_data, say, say_lines


@app.command("verify-resume")
@reads_data
def verify_resume(
    task: TaskName,
    data: Data = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each run.")] = 40,
    kills: Annotated[int, typer.Option(min=0, help="How often the second run is killed.")] = 5,
    start: Annotated[str | None, typer.Option(help="A trained model to start from (folder or hub id).")] = None,
    size: Annotated[str | None, typer.Option(help="From scratch: tiny, small or base.")] = None,
    recipe: Annotated[str | None, typer.Option(help="From scratch: modern (default), published or classic.")] = None,
    valid: Annotated[list[Path] | None, typer.Option(help="Held-out file(s).")] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Random seed of the moments at which the run is killed (default: random, and shown)."),
    ] = None,
    set_: Set = None,
    out: Annotated[
        Path | None, typer.Option(help="Keep both runs in this folder (default: only if they differ).")
    ] = None,
    *,
    reading: dict[str, Any],
) -> None:
    """Train twice, once without interruption and once killed at random moments and resumed; compare bit by bit."""
    from headway import jobs
    from headway.jobs.overrides import parse
    from headway.jobs.verify import verify_resume as verify

    often = {"save_every": max(1, steps // 8), "eval_every": max(1, steps // 2), "log_every": 1}
    plan = jobs.make_plan(
        task,
        data,
        start=start,
        size=size,
        recipe=recipe,
        valid=valid,
        **reading,
        steps=steps,
        settings={**often, **parse(set_ or [])},
    )
    seed = random.SystemRandom().randrange(10**6) if seed is None else seed
    say(f"seed {seed}")
    folder = out or Path(tempfile.mkdtemp(prefix="headway-verify-"))
    verified = verify(plan, folder, kills=kills, seed=seed, say=say)
    say_lines(verified.report())
    if not verified.same:
        say(f"both runs are kept in {folder}")
        raise typer.Exit(1)
    if out is None:
        shutil.rmtree(folder)


@app.command()
def replay(
    autopsy: Annotated[Path, typer.Argument(metavar="AUTOPSY", help="RUN/training/autopsy-STEP of a stopped run.")],
) -> None:
    """Repeat the step at which the values of a run became non-finite."""
    from headway.jobs.verify import replay as replay_autopsy

    replayed = replay_autopsy(autopsy)
    say_lines(replayed.report())
    if not replayed.reproduced:
        say("not reproduced: the model's code or this machine differs from the run's")
        raise typer.Exit(1)
