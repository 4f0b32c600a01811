"""`demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import app
from headway.cli.options import say


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Output folder.")] = Path("runs/demo")) -> None:
    """Train a small translator of dates, evaluate it, run it, and draw its attention."""
    from headway.jobs.demo import run_demo

    run_demo(out, say=say)
