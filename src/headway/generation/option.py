"""How a generation setting is declared: its default, what it means, which values it takes, who can set it.

A declaration is a dataclass field. `GenerationSettings` checks itself by it, and the command line takes its options,
their types and their help from it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any

from headway.errors import ConfigError

Check = Callable[[str, Any], Any]  # (name, value) → the value as it is stored, or ConfigError
Commands = tuple[str, ...]


@dataclass(frozen=True)
class Option:
    help: str
    check: Check
    commands: Commands  # that have it as an option


def option(default: Any, help: str, check: Check, *, commands: Commands = ()) -> Any:
    return field(default=default, metadata={"option": Option(help, check, commands)})


def option_of(declared: Field[Any]) -> Option:
    found: Option = declared.metadata["option"]
    return found


def whole(low: int, high: int) -> Check:
    def check(name: str, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ConfigError(f"{name} is {value!r}: it must be a whole number from {low} to {high}")
        return value

    return check


def real(says: str, holds: Callable[[float], bool] = lambda _: True) -> Check:
    def check(name: str, value: Any) -> Any:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not holds(value):
            raise ConfigError(f"{name} is {value!r}: it must be {says}")
        return value

    return check


def optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


def one_of(*choices: Any) -> Check:
    def check(name: str, value: Any) -> Any:
        if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
            raise ConfigError(f"{name} is {value!r}: it must be one of {', '.join(map(repr, choices))}")
        return value

    return check


def text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} is {value!r}: it must be a text")
    return value


def texts(name: str, value: Any) -> tuple[str, ...]:
    several = (value,) if isinstance(value, str) else value
    if not isinstance(several, list | tuple) or not all(isinstance(one, str) and one for one in several):
        raise ConfigError(f"{name} is {value!r}: it must be a list of texts, none of them empty")
    return tuple(several)


def ids(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} is {value!r}: it must be a list of token ids")
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise ConfigError(f"{name} contains {item!r}: a token id is a whole number from 0")
    return tuple(value)


def id_sequences(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, list | tuple) and item for item in value):
        raise ConfigError(f"{name} is {value!r}: it must be a list of lists of token ids, none of them empty")
    return tuple(ids(name, item) for item in value)


def seeds(name: str, value: Any) -> int | tuple[int, ...] | None:
    each = whole(0, 2**63)
    if isinstance(value, list | tuple):
        return tuple(each(name, seed) for seed in value)
    return optional(each)(name, value)


def json_schema(name: str, value: Any) -> str | None:
    """The schema as text, so that settings stay comparable."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"{name} is not JSON: {error}") from error
    if value is not None and not isinstance(value, dict | bool):
        raise ConfigError(f"{name} is {value!r}: it must be a JSON object")
    return None if value is None else json.dumps(value)
