"""How `--help` shows a command: options in groups, with what they take in capitals; and, where a model is named before
`--help`, only the options that it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer
from typer.core import TyperCommand

ARGUMENTS = "headway.arguments"  # in a context: what followed the command
TAKES: dict[Any, str] = {str: "TEXT", int: "N", float: "X", Path: "PATH"}
FEWER: dict[str, Callable[[list[str]], tuple[str, set[str]] | None]] = {}

# The groups that options of several commands are in. The others are in "Options".
COLUMNS, TEXT, SEARCH, SAMPLING, OTHER = (
    "Columns and encoding of files",
    "Generated text",
    "Beam search",
    "Sampling",
    "Pictures, recordings, objects and entities",
)
MODEL, LENGTH, RUN = "The model", "Length and rates", "The run"


def fewer_options(command: str) -> Callable[[Any], Any]:
    """Registers a function of the arguments before `--help` that gives a line on what is shown, and the parameters that
    are left out; None: all are shown."""

    def register(function: Any) -> Any:
        FEWER[command] = function
        return function

    return register


class Command(TyperCommand):
    """A command whose options are shown in groups."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        for parameter in self.params:
            parameter.metavar = parameter.metavar or takes(parameter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        given = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(usage(each) for each in given)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        fewer = FEWER.get(self.name or "", lambda _: None)
        line, hidden = fewer(ctx.meta.get(ARGUMENTS, [])) or ("", set())
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = None if parameter.name in hidden else parameter.get_help_record(ctx)
            if record is None:
                continue
            if parameter.param_type_name == "argument":
                groups["Arguments"].append((usage(parameter), record[1].removesuffix("  [required]")))
            else:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or "Options", []).append(record)
        if line:
            formatter.write_paragraph()
            formatter.write_text(line)
        for title, records in sorted(groups.items(), key=lambda group: group[0] == "Options"):  # they come last
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Application(typer.Typer):
    """Commands are of the class above."""

    def command(self, name: str | None = None, **options: Any) -> Any:
        return super().command(name, cls=Command, **options)


def takes(parameter: Any) -> str | None:
    """What a parameter takes, by its type: N for a whole number, PATH for a file or folder. None: nothing."""
    kind = parameter.type_descriptor.annotation
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return None if getattr(parameter, "is_flag", False) else TAKES.get(kind)


def usage(argument: Any) -> str:
    name = argument.metavar or argument.name.upper()
    return f"{name}…" if argument.nargs == -1 and "…" not in name else name
