"""`replay`: repeats a training step that gave non-finite values, from its dump."""

from __future__ import annotations

from pathlib import Path

from headway.bundle import load
from headway.distributed import pick_device
from headway.errors import ConfigError
from headway.jobs.run_config import saved_plan
from headway.jobs.training import learner
from headway.training import step_dump


def replay(folder: str | Path) -> step_dump.ReplayResult:
    """`folder` is RUN/training/autopsy-STEP; the model and task are those of the run."""
    path = Path(folder)
    run = path.absolute().parent.parent
    if not path.is_dir():
        raise ConfigError(f"{path}: no such folder; give RUN/training/autopsy-STEP")
    plan, bundle = saved_plan(run), load(run)
    model = learner(plan, bundle, lambda text: None)
    return step_dump.replay(path, model, loss=bundle.find_task().loss, device=pick_device(plan.settings().device))
