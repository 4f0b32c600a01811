"""`demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headway.cli.app import app
from headway.cli.options import say


@app.command()
def demo(out: Annotated[Path, typer.Option(help="Where the demo's model and picture go.")] = Path("runs/demo")) -> None:
    """Train a small translator of dates, test it, use it, and draw what it looks at."""
    from headway.jobs.demo import run_demo

    run_demo(out, say=say)
