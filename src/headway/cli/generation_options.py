"""The options of commands that generate text, derived from the declarations of GenerationSettings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from headway.cli.options import with_options
from headway.errors import ConfigError
from headway.generation.option import option_of
from headway.generation.settings import GenerationSettings

HINTS = get_type_hints(GenerationSettings)
TYPED = {"prefix": str, "json_schema": Path, "stop": list[str]}  # whose text is not yet the setting's value


def cli_option(name: str) -> Any:
    """The annotation of a command's parameter for this setting."""
    declared = next(each for each in fields(GenerationSettings) if each.name == name)
    kind: Any = TYPED.get(name) or next(
        (t for t in (get_args(HINTS[name]) or [HINTS[name]]) if t is not type(None)), str
    )
    more: dict[str, Any] = {"metavar": "FILE"} if kind is Path else {}
    if get_origin(HINTS[name]) is Literal:
        kind, more = str, {"metavar": "|".join(get_args(HINTS[name]))}
    flag = f"--{name.replace('_', '-')}"
    names = [] if kind is not bool else [f"{flag}/--no-{flag[2:]}"] if declared.default else [flag]
    return Annotated[kind | None, typer.Option(*names, help=option_of(declared).help, **more)]


def names_for(command: str) -> list[str]:
    return [each.name for each in fields(GenerationSettings) if command in option_of(each).commands]


def generation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to a command, which receives those that were given as one dict, `generation`."""

    def generation(given: dict[str, Any]) -> dict[str, Any]:
        if given.get("json_schema") is not None:
            given["json_schema"] = read_schema(given["json_schema"])
        return {name: value for name, value in given.items() if value not in (None, [])}

    return with_options(command, {name: cli_option(name) for name in names_for(command.__name__)}, gather=generation)


def read_schema(path: Path) -> Any:
    if not path.exists():
        raise ConfigError(f"{path}: no such file; --json-schema takes a file with a JSON schema")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not readable as JSON ({error})") from error
