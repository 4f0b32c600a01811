"""A process for `verify_resume` with a fault in it. The process ends after its run, so nothing is restored."""

from multiprocessing.connection import Connection
from pathlib import Path

from headway.jobs.run_config import Plan
from headway.jobs.verify import train_or_resume
from headway.training import rng


def resume_with_new_dropout(plan: Plan, folder: Path, pipe: Connection) -> None:
    """The random streams are not restored when the run is resumed."""
    rng.restore = lambda streams: None
    train_or_resume(plan, folder, pipe)
