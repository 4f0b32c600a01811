"""Validates JSON-like data from outside against type hints; errors name the path of the value."""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable
from typing import Annotated, Any, Literal

from headway.errors import ConfigError, with_article

MAX_EXACT = 2**53  # the largest whole number that a JSON number holds exactly


@dataclasses.dataclass(frozen=True)
class Check:
    """A condition of an `Annotated` type: `Annotated[int, Check("a number above 0", lambda value: value > 0)]`."""

    expected: str
    accepts: Callable[[Any], bool]


class _MismatchError(Exception):
    """Data that does not fit its type; `expected` and `value` are set if the value itself has another type."""

    def __init__(self, path: str, problem: str, *, expected: str = "", value: str = "") -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path, self.expected, self.value = path, expected, value


def between(low: int, high: int = MAX_EXACT) -> Check:
    """The check of a whole number from `low` to `high`."""
    expected = f"a whole number from {low} to {high}" if high < MAX_EXACT else f"a whole number, {low} or more"
    return Check(expected, lambda value: low <= value <= high)


def from_dict(kind: Any, data: Any, *, path: str = "config") -> Any:
    """Convert parsed JSON to a value of type `kind`: a dataclass, TypedDict, Literal, union, list, dict, tuple, scalar
    or `Annotated` one with a `Check`.

    Strict: unknown keys, missing keys and wrong types raise a ConfigError with the path of the value.
    """
    try:
        return _convert(kind, data, path)
    except _MismatchError as error:
        raise ConfigError(str(error)) from None


def _convert(kind: Any, data: Any, path: str) -> Any:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _annotated(args[0], args[1], data, path)
    if origin in (typing.Union, types.UnionType):
        return _union(args, data, path)
    if origin is Literal:
        if data not in args:
            raise _MismatchError(path, f"{_shorten(data)} is not one of {', '.join(map(repr, args))}")
        return data
    if origin is tuple:
        return _tuple(args, data, path)
    if origin is list:
        return [_convert(args[0], item, f"{path}[{i}]") for i, item in enumerate(_instance(list, data, path))]
    if origin is dict:
        items = _instance(dict, data, path).items()
        return {key: _convert(args[1], value, _join(path, key)) for key, value in items}
    if dataclasses.is_dataclass(kind) or typing.is_typeddict(kind):
        return _record(kind, data, path)
    return data if kind is Any else _instance(kind, data, path)


def _annotated(kind: Any, check: Check, data: Any, path: str) -> Any:
    try:
        value = _convert(kind, data, path)
    except _MismatchError as error:
        if error.path != path:
            raise
        raise _wrong_type(path, check.expected, data) from None
    if not check.accepts(value):
        raise _wrong_type(path, check.expected, data)
    return value


def _union(options: tuple[Any, ...], data: Any, path: str) -> Any:
    if data is None and type(None) in options:
        return None
    errors: list[_MismatchError] = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _convert(option, data, path)
        except _MismatchError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    if all(error.path == path and error.expected for error in errors):
        raise _wrong_type(path, " or ".join(error.expected for error in errors), data)
    raise _MismatchError(path, "fits none of its types: " + "; ".join(map(str, errors)))


def _tuple(args: tuple[Any, ...], data: Any, path: str) -> Any:
    if not isinstance(data, list | tuple):
        raise _wrong_type(path, "a list", data)
    same = len(args) == 2 and args[1] is Ellipsis
    if not same and len(args) != len(data):
        raise _MismatchError(path, f"expected {len(args)} values, got {len(data)}")
    return tuple(_convert(args[0] if same else args[i], item, f"{path}[{i}]") for i, item in enumerate(data))


def _record(kind: Any, data: Any, path: str) -> Any:
    hints = typing.get_type_hints(kind, include_extras=True)
    hints = {name: hint for name, hint in hints.items() if typing.get_origin(hint) is not typing.ClassVar}
    for key in _instance(dict, data, path):
        if key not in hints:
            raise _MismatchError(path, f"unknown key {key!r:.80}; known: {', '.join(hints)}")
    values = {key: _convert(hints[key], value, _join(path, key)) for key, value in data.items()}
    for name in _required(kind):
        if name not in values:
            raise _MismatchError(path, f"missing key {name!r}")
    return kind(**values)


def _required(kind: Any) -> list[str]:
    if typing.is_typeddict(kind):
        return sorted(kind.__required_keys__)
    nothing = dataclasses.MISSING
    return [f.name for f in dataclasses.fields(kind) if f.default is nothing and f.default_factory is nothing]


def _instance(kind: Any, data: Any, path: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        data = float(data) if abs(data) <= sys.float_info.max else data
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise _wrong_type(path, {list: "a list", dict: "an object"}.get(kind, kind.__name__), data)
    return data


def _wrong_type(path: str, expected: str, data: Any) -> _MismatchError:
    value = _shorten(data)
    return _MismatchError(path, f"expected {expected}, got {value}", expected=expected, value=value)


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _shorten(data: Any) -> str:
    plain = data is None or isinstance(data, str | int | float | list | tuple | dict)
    return f"{data!r:.80}" if plain else with_article(type(data).__name__)
