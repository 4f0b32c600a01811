"""The `headway` command; the modules beside it register its subcommands."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headway import __version__
from headway.cli.help import Application

# Commands in the order in which a user meets them.
GROUPS = {
    "Train": ("check", "train", "plan", "runs", "compare-runs"),
    "Use": ("evaluate", "run", "chat", "serve"),
    "Understand": ("explain", "compare", "info", "demo"),
    "Convert and verify": ("convert", "calibrate", "bench", "verify-resume", "replay"),
}


OPENS_A_MODEL = ("model", "models", "start")  # parameters of commands to which --no-verify is added


class Commands(TyperGroup):
    """Lists the commands in groups."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in self.commands.values():
            if any(parameter.name in OPENS_A_MODEL for parameter in command.params):
                command.params.append(_no_verify())

    def list_commands(self, ctx: Any) -> list[str]:
        ordered = [name for names in GROUPS.values() for name in names if name in self.commands]
        return ordered + [name for name in super().list_commands(ctx) if name not in ordered]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """With the first sentence of each, whole."""
        width = max(map(len, self.commands))
        for title, names in GROUPS.items():
            known = [name for name in names if name in self.commands]
            rows = [(name, first_sentence(self.commands[name].help or "")) for name in known]
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in rows])


def first_sentence(text: str) -> str:
    first, dot, _ = " ".join(text.split()).partition(". ")
    return first + dot.strip()


def _no_verify() -> Any:
    """An option that is no argument of the command's function."""
    owner = typer.Typer(add_completion=False)

    @owner.command()
    def command(
        no_verify: Annotated[
            bool, typer.Option("--no-verify", help="Open models whose files differ from what was saved.")
        ] = False,
    ) -> None: ...

    (option,) = typer.main.get_command(owner).params
    option.expose_value, option.callback = False, _skip_verification
    return option


def _skip_verification(context: Any, option: Any, chosen: bool) -> None:
    if chosen:
        from headway.checkpoints.saved import unverified

        context.with_resource(unverified())


app = Application(
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
