"""How an answer is written: the options of everything that generates, each said once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from headway.cli.options import with_options
from headway.errors import ConfigError

WRITING: dict[str, Any] = {
    "max_new_tokens": Annotated[int | None, typer.Option(help="Longest answer, in tokens.")],
    "min_new_tokens": Annotated[int | None, typer.Option(help="Shortest answer, in tokens.")],
    "temperature": Annotated[float | None, typer.Option(help="How freely to choose; 0 is greedy.")],
    "top_k": Annotated[int | None, typer.Option(help="Choose among the k likeliest tokens.")],
    "top_p": Annotated[float | None, typer.Option(help="… among the likeliest that have this probability together.")],
    "min_p": Annotated[float | None, typer.Option(help="… among those this many times as likely as the likeliest.")],
    "typical_p": Annotated[float | None, typer.Option(help="… among the most typical that have this probability.")],
    "seed": Annotated[int | None, typer.Option(help="The same seed gives the same answer.")],
    "repetition_penalty": Annotated[float | None, typer.Option(help="Above 1: against tokens that were there before.")],
    "frequency_penalty": Annotated[float | None, typer.Option(help="Against a token, for each time it was written.")],
    "presence_penalty": Annotated[float | None, typer.Option(help="Against a token that was written at all.")],
    "no_repeat_ngram": Annotated[int | None, typer.Option(help="No run of so many tokens twice.")],
    "stop": Annotated[list[str] | None, typer.Option(help="Text that ends an answer; repeatable.")],
    "regex": Annotated[str | None, typer.Option(help="The answer matches this regular expression, as a whole.")],
    "json_schema": Annotated[
        Path | None, typer.Option(metavar="FILE", help="The answer is JSON, valid for the schema in this file.")
    ],
    "speculate": Annotated[
        bool | None, typer.Option("--speculate/--no-speculate", help="Guess at what repeats itself: the same, sooner.")
    ],
    "overflow": Annotated[
        str | None,
        typer.Option(metavar="error|window", help="When the context is full: stop, or forget what is old."),
    ],
}


def writes(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the options of generation; it receives those that were given as one dict, `writing`."""

    def writing(said: dict[str, Any]) -> dict[str, Any]:
        if said["json_schema"] is not None:
            said["json_schema"] = read_schema(said["json_schema"])
        return {name: value for name, value in said.items() if value is not None}

    return with_options(command, WRITING, gather=writing)


def read_schema(path: Path) -> Any:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; --json-schema takes a file with a JSON schema")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not readable as JSON ({error})") from error
