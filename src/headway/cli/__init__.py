"""The command line: argv → jobs. No other package imports it; torch is imported only by the commands that need it."""

from __future__ import annotations

import typer

from headway.cli import chat, convert, demo, estimate, explain, inference, training, verify  # noqa: F401 – they register commands
from headway.cli.app import app
from headway.errors import HeadwayError


def main() -> None:
    try:
        app()
    except HeadwayError as error:
        typer.echo(f"error: {error}", err=True)
        raise SystemExit(2) from None
    except BrokenPipeError:
        raise SystemExit(141) from None
