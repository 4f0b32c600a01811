"""Arguments and options that several commands take, each declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.tasks import TASKS

LISTED = "; ".join(f"{name}: {entry.summary}" for name, entry in TASKS.items())
TaskName = Annotated[str, typer.Argument(metavar="TASK", help=f"One of: {LISTED}.")]
Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model folder, or a hub id such as owner/name.")]
Data = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[DATA]", help="A file or folder; two parallel files for translate (default: the built-in data)."
    ),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", help="Convert the weights on loading: int8, bf16, fp16 or fp32 (default: as saved)."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]
Set = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting; repeatable.")]

READING = {
    "text": Annotated[str | None, typer.Option("--text", help="Column that holds the text.")],
    "label": Annotated[str | None, typer.Option("--label", help="Column that holds the label.")],
    "source": Annotated[str | None, typer.Option("--source", help="Column that holds the source text.")],
    "target": Annotated[str | None, typer.Option("--target", help="Column that holds the target text.")],
    "encoding": Annotated[str | None, typer.Option(help="Encoding of the files, if not Unicode (latin-1, cp1252, …).")],
}


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say how data files are read to a command, which receives them as one dict, `reading`, with
    the keys `columns` and `encoding`."""

    def reading(given: dict[str, Any]) -> dict[str, Any]:
        encoding = given.pop("encoding")
        return {"columns": {name: column for name, column in given.items() if column}, "encoding": encoding}

    return with_options(command, READING, gather=reading)


def with_options(
    command: Callable[..., None], options: dict[str, Any], *, gather: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[..., None]:
    """The command with more options, which it receives as one dict named like the function `gather`."""

    @wraps(command)
    def called(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in options}
        command(**given, **{gather.__name__: gather(chosen)})

    own = [
        parameter
        for parameter in inspect.signature(command, eval_str=True).parameters.values()
        if parameter.name != gather.__name__
    ]
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in options.items()
    ]
    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own] + added
    )
    called.__annotations__ = {each.name: each.annotation for each in own + added}
    return called


def say(text: str = "") -> None:
    typer.echo(text)


def say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def say_saved(folder: Path) -> None:
    say(f"saved in {folder}; use it with:  headway run {folder} INPUT")
