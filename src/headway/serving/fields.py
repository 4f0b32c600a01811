"""JSON bodies: read within bounds, and checked against types whose every number is bounded. Unknown fields are refused,
so that a misspelt one is not ignored in silence."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Annotated, Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetCoreSchemaHandler, ValidationError
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request as StarletteRequest

from headway.errors import did_you_mean
from headway.printable import has_surrogate
from headway.serving.api_errors import ApiError
from headway.serving.exchange import in_thread
from headway.serving.limits import ServerLimits

SEED = 2**63 - 1
VARIANT = re.compile(
    r"^(str|int|float|bool|dict|none|bytes)$|[\[(]|^function-|^constrained-|^[A-Z]"
)  # parts that a union adds


def _stop_at_first_error(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == "list":
            schema["fail_fast"] = True
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            _stop_at_first_error(part)


class Body(BaseModel):
    """Checked up to the first wrong item of each list: a million wrong ones are not a million errors."""

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> Any:
        schema = handler(source)
        _stop_at_first_error(schema)
        return schema


def _none(value: Any) -> None:
    if value not in (None, [], {}, "", False, "none"):
        raise ValueError("this server does not support it; leave it out")


Text = Annotated[str, Field(max_length=ServerLimits.characters)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Temperature = Annotated[float, Field(ge=0, le=2)]
Share = Annotated[float, Field(gt=0, le=1)]
Penalty = Annotated[float, Field(ge=-2, le=2)]
Seed = Annotated[int, Field(ge=-SEED - 1, le=SEED)]
Tokens = Annotated[int, Field(ge=1, le=1_000_000)]
Id = Annotated[int, Field(ge=0, le=10_000_000)]
Ids = Annotated[list[Id], Field(min_length=1, max_length=1_000_000)]
Texts = Annotated[list[Text], Field(min_length=1, max_length=1024)]
Unsupported = Annotated[Any, BeforeValidator(_none)]  # accepted while it is empty
Ignored = Any  # without effect on the answer


# ---------------------------------------------------------------------------------------- JSON


def parse_json(data: bytes, limits: ServerLimits) -> Any:
    """The value of a JSON text in UTF-8 without NaN, half surrogate pairs, a key that an object has twice, or more of
    anything than the limits."""
    check_counts(data, limits)
    try:
        value = json.loads(str(data, "utf-8-sig"), object_pairs_hook=partial(_unique, limits.keys))
    except ApiError:
        raise
    except RecursionError:
        raise _too_deep(limits) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    check_depth(value, limits)
    return value


def _unique(most: int, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(pairs) > most:
        raise ApiError(400, f"an object of the body has {len(pairs):,} keys; at most {most:,}", code="invalid_json")
    out = dict(pairs)
    if len(out) < len(pairs):
        twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
        param = twice[:80] if twice.isprintable() else None
        raise ApiError(400, f"{twice!r:.80} is given twice in one object of the body", param=param, code="invalid_json")
    return out


def check_counts(data: bytes, limits: ServerLimits) -> None:
    """Counts what parsing takes time and memory for, in the text. Each value begins a list or an object, or follows a
    comma, or is the only one."""
    if len(data) <= limits.values:  # not enough bytes for too many
        return
    values, long = 1, re.compile(rb"[0-9]{%d}" % (limits.digits + 1))
    for part in _outside_strings(data):
        values += sum(map(part.count, (b",", b"[", b"{")))
        if values > limits.values:
            raise ApiError(400, f"the body has more than {limits.values:,} values", code="invalid_json")
        if long.search(part):
            raise ApiError(400, f"the body has a number of more than {limits.digits} digits", code="invalid_json")


def _outside_strings(data: bytes, step: int = 2**16) -> Iterator[bytes]:
    """What is not inside of the strings of a JSON text, in parts: one pass over all of a body would keep the other
    threads waiting."""
    at, inside = 0, 0
    while at < len(data):
        part = data[at : at + step]
        if (len(part) - len(part.rstrip(b"\\"))) % 2 and at + step < len(data):
            part = part[:-1]  # the backslash belongs to the next character
        at += len(part)
        between = part.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        yield b"".join(between[inside::2])
        inside = (inside + len(between) - 1) % 2


def check_depth(value: Any, limits: ServerLimits) -> None:
    level: list[Any] = [value]
    for _ in range(limits.depth):
        inner: list[Any] = []
        for part in level:
            if isinstance(part, str):
                if has_surrogate(part):
                    raise ApiError(400, "the body contains half a surrogate pair, which is not a character")
            elif isinstance(part, float):
                if not math.isfinite(part):
                    raise _not_finite(value)
            elif isinstance(part, dict):
                inner += part
                inner += part.values()
            elif isinstance(part, list):
                inner += part
        if not inner:
            return
        level = inner
    raise _too_deep(limits)


def _not_finite(value: Any) -> ApiError:
    """Names the field of the first number that is NaN or infinite, which JSON does not have."""
    waiting: deque[tuple[Any, str]] = deque([(value, "")])
    while waiting:
        part, place = waiting.popleft()
        if isinstance(part, float) and not math.isfinite(part):
            param = place.removeprefix(".")
            return ApiError(400, f"{param or 'body'}: {part} is not a number of JSON", param=param or None)
        if isinstance(part, dict):
            waiting += [(each, f"{place}.{name:.80}") for name, each in part.items()]
        elif isinstance(part, list):
            waiting += [(each, f"{place}[{number}]") for number, each in enumerate(part)]
    raise ValueError("every number is finite")


def _too_deep(limits: ServerLimits) -> ApiError:
    return ApiError(400, f"the body is nested more than {limits.depth} levels deep", code="invalid_json")


class BoundedRequest(Request):
    kind: type[BaseModel] | None = None  # of the body

    async def json(self) -> Any:
        """Of a large body, the checked model: reading it is not left to the event loop."""
        if not hasattr(self, "_json"):
            data, limits = await self.body(), self.app.state.limits
            if len(data) <= limits.small_body_bytes:
                self._json = parse_json(data, limits)
            else:
                self._json = await in_thread(self._checked, data, limits)
        return self._json

    def _checked(self, data: bytes, limits: ServerLimits) -> Any:
        value = parse_json(data, limits)
        return value if self.kind is None else validated(self.kind, value)

    async def fields(self, *, param: str, files: int = 0) -> list[tuple[str, str | bytes]]:
        """Of a form: the parser is Python, and takes seconds for millions of headers. A body that is not a form is an
        error of the field `param`."""
        data, scope = await self.body(), dict(self.scope)

        async def body() -> Any:
            return {"type": "http.request", "body": data}

        async def read() -> list[tuple[str, str | bytes]]:
            try:
                async with Request(scope, body).form(max_files=files, max_fields=32) as form:
                    items = form.multi_items()
                    return [(name, await part.read() if isinstance(part, UploadFile) else part) for name, part in items]
            except HTTPException as error:
                reason = f"the body is not a form with the field {param} that can be read"
                raise ApiError(400, f"{reason} ({error.detail})", param=param) from None

        return await in_thread(lambda: asyncio.run(read()))


def validated(kind: type[Any], value: Any) -> Any:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise validation_error(list(error.errors(include_url=False)), kind) from None


class BoundedRoute(APIRoute):
    """A route whose JSON body is read by `parse_json`."""

    def get_route_handler(self) -> Callable[[StarletteRequest], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def bounded(request: StarletteRequest) -> Response:
            given = BoundedRequest(request.scope, request.receive)
            given.kind = body_kind(self)
            return await handler(given)

        return bounded


def body_kind(route: Any) -> type[BaseModel] | None:
    """The model of a route's body."""
    field = route.body_field if isinstance(route, APIRoute) else None
    kind = None if field is None else field.field_info.annotation
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


# ---------------------------------------------------------------------------------------- errors of fields


def validation_error(errors: list[Any], body: type[BaseModel] | None = None) -> ApiError:
    """Names the first wrong field as it is in the body: messages[0].content."""
    error = max(errors, key=lambda each: len(each["loc"]))  # of a union's, that of the variant that fits best
    place = [part for part in error["loc"] if part != "body" and not (isinstance(part, str) and VARIANT.search(part))]
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in place]
    param = "".join(parts).removeprefix(".")
    kind, message = error["type"], error["msg"]
    if kind == "missing" and not param:
        message = "the request needs a JSON body with content type application/json"
    elif kind == "missing":
        message = "it is required"
    elif kind == "extra_forbidden":
        known = list(body.model_fields) if body is not None and len(place) == 1 else []
        message = "; ".join(filter(None, ["there is no such field", did_you_mean(str(place[-1]), known)]))
    elif kind in ("json_invalid", "dict_type", "model_attributes_type", "model_type") and not param:
        message = "the body must be a JSON object with content type application/json"
    given = error.get("input")
    given = given[:80] if isinstance(given, str) else given
    plain = kind != "missing" and isinstance(given, str | int | float | bool | None)
    shown = f" (found {given!r:.80})" if plain else ""
    return ApiError(400, f"{param or 'body'}: {message.strip()}{shown}", param=param or None)
