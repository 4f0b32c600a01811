"""A life for `verify_resume` with a fault in it. The process is its own, so nothing is put back."""

from multiprocessing.connection import Connection
from pathlib import Path

from headway.jobs.run_config import Plan
from headway.jobs.verify import live
from headway.training import rng


def live_with_new_dropout(plan: Plan, folder: Path, told: Connection) -> None:
    """Random streams are not put back when a run is gone on with."""
    rng.restore = lambda streams: None
    live(plan, folder, told)
