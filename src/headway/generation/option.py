"""How a generation setting is declared: its default, what it means, which values it takes, who can set it.

A declaration is a dataclass field. `GenerationSettings` checks itself by it, and the command line takes its options,
their types and their help from it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import Field, dataclass, field
from typing import Any

from headway.errors import ConfigError
from headway.printable import has_surrogate

Check = Callable[[str, Any], Any]  # (name, value) → the value as it is stored, or ConfigError
Commands = tuple[str, ...]
MAX_PATTERN = 100_000  # characters of a regular expression
MAX_SCHEMA = 2**20  # characters of a JSON schema
GUIDANCE = "x-guidance"  # options of the compiler inside a schema
MAX_DEPTH = 100  # levels of a JSON schema; the compiler parses 128


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
        if not number or not -sys.float_info.max <= value <= sys.float_info.max or not holds(value):
            raise ConfigError(f"{name} is {value!r:.80}: it must be {says}")
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


FLAG = one_of(True, False)


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


def pattern(name: str, value: Any) -> str:
    """A regular expression."""
    text(name, value)
    if len(value) > MAX_PATTERN:
        raise ConfigError(f"{name} has {len(value):,} characters, more than {MAX_PATTERN:,}")
    if has_surrogate(value):
        raise ConfigError(f"{name} contains half a surrogate pair, which is not a character")
    return value


def json_schema(name: str, value: Any) -> str | None:
    """The schema as text, so that settings stay comparable."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"{name} is not JSON: {error}") from error
    if value is None:
        return None
    if value is True:  # the schema of anything
        value = {}
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is {value!r:.200}: it must be a JSON object")
    if GUIDANCE in value:
        raise ConfigError(f"{name}: {GUIDANCE} changes what counts as JSON; remove it")
    _check_json(name, value)
    out = json.dumps(value)
    if len(out) > MAX_SCHEMA:
        raise ConfigError(f"{name} has {len(out):,} characters, more than {MAX_SCHEMA:,}")
    return out


def _check_json(name: str, value: Any) -> None:
    """Raises for what JSON cannot say (NaN, infinity, half a surrogate pair, a key that is not a text) and for nesting
    beyond what the compiler of schemas parses."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        if not level:
            return
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner += [*part, *part.values()]
                if not all(isinstance(key, str) for key in part):
                    raise ConfigError(f"{name} has a key that is not a text")
            elif isinstance(part, list | tuple):
                inner += part
            elif isinstance(part, str):
                if has_surrogate(part):
                    raise ConfigError(f"{name} contains half a surrogate pair, which is not a character: {part!a:.80}")
            elif part is not None and not (isinstance(part, int | float) and abs(part) <= sys.float_info.max):
                raise ConfigError(f"{name} contains {part!r:.80}, which is not a JSON value or not a finite number")
        level = inner
    raise ConfigError(f"{name} is nested more than {MAX_DEPTH} levels deep")
