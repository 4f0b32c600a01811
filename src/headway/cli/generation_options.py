"""The options of commands that generate text, pictures or transcripts, from the declarations of their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import typer

from headway.cli.help import OTHER, SAMPLING, SEARCH, TEXT
from headway.cli.options import with_options
from headway.errors import CheckpointError, ConfigError
from headway.generation.box_settings import BoxSettings
from headway.generation.entity_settings import EntitySettings
from headway.generation.flow_settings import FlowSettings
from headway.generation.glossary_settings import GlossarySettings
from headway.generation.option import option_of
from headway.generation.settings import GenerationSettings
from headway.generation.speech_settings import SpeechSettings

OTHER_SETTINGS = (FlowSettings, SpeechSettings, BoxSettings, EntitySettings, GlossarySettings)
HINTS = {name: hint for each in (*OTHER_SETTINGS, GenerationSettings) for name, hint in get_type_hints(each).items()}
DECLARED = {each.name: each for each in fields(GenerationSettings)}
for settings in OTHER_SETTINGS:
    DECLARED |= {each.name: each for each in fields(settings) if each.name not in DECLARED}
TEXT_OPTIONS = tuple(each.name for each in fields(GenerationSettings))
USES = {  # what a task does that takes these options; the first that declares an option says it
    EntitySettings: "find entities by name",
    BoxSettings: "give labels or objects a score",
    GenerationSettings: "generate text",
    FlowSettings: "draw",
    GlossarySettings: "translate",
    SpeechSettings: "transcribe recordings",
}
OTHER_NAMES = {"n": "--count"}
PANELS = {
    SEARCH: ("beams", "groups", "diversity_penalty", "length_penalty", "coverage_penalty"),
    SAMPLING: ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty", "frequency_penalty",
               "presence_penalty", "no_repeat_ngram", "seed"),
}  # fmt: skip
# whose text is not yet the setting's value
TYPED = {"prefix": str, "json_schema": Path, "glossary": Path, "stop": list[str]}


def cli_option(name: str) -> Any:
    """The annotation of a command's parameter for this setting."""
    declared = DECLARED[name]
    kind: Any = TYPED.get(name) or next(
        (t for t in (get_args(HINTS[name]) or [HINTS[name]]) if t is not type(None)), str
    )
    more: dict[str, Any] = {"metavar": "FILE"} if kind is Path else {}
    if get_origin(HINTS[name]) is Literal:
        kind, more = str, {"metavar": "|".join(get_args(HINTS[name]))}
    flag = f"--{name.replace('_', '-')}"
    names = [f"{flag}/--no-{flag[2:]}"] if kind is bool and declared.default else [flag]
    own = TEXT if name in TEXT_OPTIONS else OTHER
    more["rich_help_panel"] = next((panel for panel, names in PANELS.items() if name in names), own)
    names = ([OTHER_NAMES[name]] if name in OTHER_NAMES else []) + names
    return Annotated[kind | None, typer.Option(*names, help=option_of(declared).help, **more)]


def use_of(name: str) -> str:
    return next(use for settings, use in USES.items() if any(each.name == name for each in fields(settings)))


def names_for(command: str) -> list[str]:
    return [name for name, each in DECLARED.items() if command in option_of(each).commands]


def generation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to a command, which receives those that were given as one dict, `generation`."""

    def generation(given: dict[str, Any]) -> dict[str, Any]:
        if given.get("json_schema") is not None:
            given["json_schema"] = read_schema(given["json_schema"])
        return {name: value for name, value in given.items() if value not in (None, [])}

    return with_options(command, {name: cli_option(name) for name in names_for(command.__name__)}, gather=generation)


def read_schema(path: Path) -> Any:
    from headway.checkpoints.header import read_given_json

    try:
        return read_given_json(path, kind=object)
    except CheckpointError as error:
        raise ConfigError(f"{error}; --json-schema takes a file with a JSON schema") from error
