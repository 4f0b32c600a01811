"""The `headway` command; the modules beside it register its subcommands."""

from __future__ import annotations

from typing import Annotated

import typer

from headway import __version__

app = typer.Typer(
    name="headway",
    help="Train, run and inspect transformers on your own data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"headway {__version__}")
        raise typer.Exit
