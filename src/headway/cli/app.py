"""The `headway` command; the modules beside it register its subcommands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headway import __version__

# Commands in the order in which a user meets them.
GROUPS = {
    "Train": ("check", "train", "plan", "runs", "compare-runs"),
    "Use": ("evaluate", "run", "chat", "serve"),
    "Understand": ("explain", "compare", "info", "demo"),
    "Convert and verify": ("convert", "calibrate", "bench", "verify-resume", "replay"),
}


class Commands(TyperGroup):
    """Lists the commands in groups."""

    def list_commands(self, ctx: Any) -> list[str]:
        ordered = [name for names in GROUPS.values() for name in names if name in self.commands]
        return ordered + [name for name in super().list_commands(ctx) if name not in ordered]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            known = [name for name in names if name in self.commands]
            rows = [(name, self.commands[name].get_short_help_str(formatter.width - 6 - width)) for name in known]
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])


app = typer.Typer(
    name="headway",
    cls=Commands,
    help="Train, run and inspect transformers on your own data.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def top(version: Annotated[bool, typer.Option("--version", help="Show the version.")] = False) -> None:
    if version:
        typer.echo(f"headway {__version__}")
        raise typer.Exit
