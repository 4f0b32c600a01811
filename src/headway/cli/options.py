"""Arguments and options that several commands take, each declared once."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.help import COLUMNS
from headway.cli.shell_completion import model_folders, task_names
from headway.errors import InputError
from headway.printable import PROSE, printable, printable_json
from headway.tasks import TASKS

LISTED = "; ".join(f"{name}: {entry.summary}" for name, entry in TASKS.items())
TaskName = Annotated[str, typer.Argument(metavar="TASK", help=f"One of: {LISTED}.", autocompletion=task_names)]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL", help="A model folder, or a hub id such as owner/name.", autocompletion=model_folders
    ),
]
Data = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[DATA]",
        help="Files, folders or patterns ('data/*.csv'); a zip archive (x.zip, or a file in it: x.zip/a.csv); an Excel "
        "workbook (x.xlsx, or a sheet: x.xlsx/May); two parallel files for translate (default: the built-in data).",
    ),
]
Weights = Annotated[
    str | None,
    typer.Option("--weights", help="Convert the weights on loading: int8, bf16, fp16 or fp32 (default: as saved)."),
]
Device = Annotated[
    str, typer.Option("--device", help="The device: cpu (default), cuda, cuda:1, mps or auto.", show_default=False)
]
Threads = Annotated[int | None, typer.Option("--threads", help="Number of threads (default: all cores).", min=1)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting by its name; repeatable.")
]

READING = {
    "text": Annotated[
        list[str] | None,
        typer.Option(
            "--text",
            rich_help_panel=COLUMNS,
            help="Column that holds the text; twice for a pair of texts (classify, embed).",
        ),
    ],
    "label": Annotated[
        list[str] | None, typer.Option("--label", rich_help_panel=COLUMNS, help="Column that holds the label.")
    ],
    "source": Annotated[
        list[str] | None, typer.Option("--source", rich_help_panel=COLUMNS, help="Column that holds the source text.")
    ],
    "target": Annotated[
        list[str] | None, typer.Option("--target", rich_help_panel=COLUMNS, help="Column that holds the target text.")
    ],
    "image": Annotated[
        list[str] | None,
        typer.Option("--image", rich_help_panel=COLUMNS, help="Column that holds the pictures' files."),
    ],
    "caption": Annotated[
        list[str] | None,
        typer.Option("--caption", rich_help_panel=COLUMNS, help="Column that holds the pictures' captions."),
    ],
    "column": Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            metavar="FIELD=NAME",
            rich_help_panel=COLUMNS,
            help="Column of any field of the task, such as words=tokens, question=q or audio=file; repeatable.",
        ),
    ],
    "encoding": Annotated[
        str | None,
        typer.Option(rich_help_panel=COLUMNS, help="Encoding of the files, if not Unicode (latin-1, cp1252, …)."),
    ],
}


def reads_data(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options that say how data files are read to a command, which receives them as one dict, `reading`, with
    the keys `columns` and `encoding`; and the number of threads, which is set before the command."""

    def reading(given: dict[str, Any]) -> dict[str, Any]:
        encoding = given.pop("encoding")
        set_threads(given.pop("threads"))
        columns = columns_by_field(given.pop("column") or [])
        for name, named in given.items():
            columns.setdefault(name, [])[:0] = named or []
        return {"columns": {name: named for name, named in columns.items() if named}, "encoding": encoding}

    return with_options(command, READING | {"threads": Threads}, gather=reading)


def columns_by_field(given: Iterable[str]) -> dict[str, list[str]]:
    """The values of `--column`, FIELD=NAME, as columns by field."""
    columns: dict[str, list[str]] = {}
    for each in given:
        name, _, column = each.partition("=")
        if not name or not column:
            raise InputError(f"--column {each!r}: give FIELD=NAME, such as words=tokens")
        columns.setdefault(name, []).append(column)
    return columns


def set_threads(count: int | None) -> None:
    if count is not None:
        import torch

        torch.set_num_threads(count)


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
    """Prints one line."""
    typer.echo(printable(text))


def say_text(text: str, *, end: str = "\n") -> None:
    """Prints text that is itself the output and may have several lines, such as an answer or a part of one."""
    print(printable(text, keep=PROSE), end=end, flush=True)


def say_json(value: Any, *, indent: int | None = None) -> None:
    """Prints JSON; a number that is not finite, which JSON does not have, is an error."""
    try:
        out = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, default=str)  # a Path is text
    except ValueError as error:
        raise InputError(f"the result has a number that is not finite, so it is not JSON ({error})") from error
    typer.echo(printable_json(out))


def note(text: str) -> None:
    """Prints one line to standard error."""
    typer.echo(printable(text), err=True)


def say_lines(lines: Iterable[str]) -> None:
    for line in lines:
        say(line)


def say_saved(folder: Path) -> None:
    """The folder of a saved model, and how it is used."""
    from headway.jobs.card import commands
    from headway.loading import saved_task
    from headway.preprocess.processor import Processor

    task = saved_task(folder, Processor.load(folder).tokenizer)
    say(f"saved in {folder}" + ("" if task is None else "; use it with:"))
    if task is not None:
        say_lines(f"  {line}" for line in commands(str(folder), task))
