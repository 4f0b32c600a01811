"""JSON bodies: read within bounds, and checked against types whose every number is bounded. Unknown fields are refused,
so that a misspelt one is not ignored in silence."""

from __future__ import annotations

import json
import math
import re
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.requests import Request as StarletteRequest

from headway.errors import did_you_mean
from headway.printable import has_surrogate
from headway.serving.api_errors import ApiError
from headway.serving.limits import Limits

SEED = 2**63 - 1
VARIANT = re.compile(
    r"^(str|int|float|bool|dict|none|bytes)$|[\[(]|^function-|^constrained-|^[A-Z]"
)  # parts that a union adds


class Body(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def _none(value: Any) -> None:
    if value not in (None, [], {}, "", False, "none"):
        raise ValueError("this server does not support it; leave it out")


Text = Annotated[str, Field(max_length=4_000_000)]
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


def parse_json(data: bytes, limits: Limits) -> Any:
    """The value of a JSON text without NaN, half surrogate pairs, or nesting beyond the limit."""
    try:
        value = json.loads(data)
    except RecursionError:
        raise _too_deep(limits) from None
    except (ValueError, UnicodeDecodeError) as error:
        raise ApiError(400, f"the body is not JSON: {error}", code="invalid_json") from None
    check_depth(value, limits)
    return value


def check_depth(value: Any, limits: Limits) -> None:
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


def _too_deep(limits: Limits) -> ApiError:
    return ApiError(400, f"the body is nested more than {limits.depth} levels deep", code="invalid_json")


class BoundedRequest(Request):
    async def json(self) -> Any:
        if not hasattr(self, "_json"):
            self._json = parse_json(await self.body(), self.app.state.limits)
        return self._json


class BoundedRoute(APIRoute):
    """A route whose JSON body is read by `parse_json`."""

    def get_route_handler(self) -> Callable[[StarletteRequest], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def bounded(request: StarletteRequest) -> Response:
            return await handler(BoundedRequest(request.scope, request.receive))

        return bounded


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
    plain = kind != "missing" and isinstance(given, str | int | float | bool | None)
    shown = f" (found {given!r:.80})" if plain else ""
    return ApiError(400, f"{param or 'body'}: {message.strip()}{shown}", param=param or None)
