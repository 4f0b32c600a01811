"""The command line: argv → jobs. No other package imports it; torch is imported only by the commands that need it."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer

from headway.cli import chat, compare, convert, demo, estimate, explain, inference, runs, serve, training, verify  # noqa: F401 – they register commands
from headway.cli.app import app
from headway.cli.options import note
from headway.errors import HeadwayError
from headway.printable import printable

UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "UsageError")  # of typer's click


def main() -> None:
    try:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_, **__: note(f"warning: {message}")
                run_command()
        finally:
            sys.stdout.flush()
    except HeadwayError as error:
        note(f"error: {error}")
        raise SystemExit(2) from None
    except BrokenPipeError:
        _discard_output()
        raise SystemExit(141) from None
    except OSError as error:
        if not _discard_output():
            raise
        note(f"error: standard output cannot be written ({error.strerror})")
        raise SystemExit(2) from None


def run_command() -> None:
    """Runs the command that sys.argv names. What is wrong with its options is printed as every other text is."""
    try:
        code = typer.main.get_command(app).main(standalone_mode=False)
    except UsageError as error:
        if error.ctx is None or error.message != error.ctx.get_help():
            error.message = printable(error.message)
        error.show()
        raise SystemExit(error.exit_code) from None
    except typer.Abort:
        note("Aborted!")
        raise SystemExit(1) from None
    raise SystemExit(code if isinstance(code, int) else 0)


def _discard_output() -> bool:
    """Whether standard output fails; if so, what is left in its buffer is discarded, so that exiting does not fail."""
    try:
        sys.stdout.flush()
        return False
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
