"""/translate and /languages, by LibreTranslate's shape.

A model's languages are known from its name, if that is a pair of codes: `headway serve en-de=runs/translator`.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field

from headway.serving.answers import first_texts
from headway.serving.api_errors import ApiError
from headway.serving.fields import Body, BoundedRequest, BoundedRoute, Ignored, Text, Unsupported, validated
from headway.serving.model_table import ModelEntry, ModelTable

router = APIRouter(route_class=BoundedRoute)
PAIR = re.compile(r"([a-z]{2,3})-([a-z]{2,3})")
Code = Annotated[str, Field(min_length=2, max_length=16)]
FORM = "application/x-www-form-urlencoded"


class TranslateBody(Body):
    q: Text | Annotated[list[Text], Field(min_length=1, max_length=256)]
    source: Code
    target: Code
    format: str | None = None
    alternatives: Unsupported = None
    api_key: Ignored = None
    secret: Ignored = None


SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": TranslateBody.model_json_schema()} for kind in ("application/json", FORM)},
    }
}


@router.post("/translate", openapi_extra=SCHEMA)
async def translate(request: Request) -> Any:
    body = await _body(request)
    if body.format not in (None, "text"):
        raise ApiError(400, f"format {body.format!r:.40}: only text is translated", param="format")
    models: ModelTable = request.app.state.models
    name = model_for(models, body.source, body.target)
    texts = [body.q] if isinstance(body.q, str) else body.q
    async with models.use(name) as served:
        encoders = [partial(served.prompt_ids, text) for text in texts]
        out = await first_texts(request, served, encoders, {}, param="q")
    return {"translatedText": out[0] if isinstance(body.q, str) else out}


@router.get("/languages")
async def languages(request: Request) -> Any:
    found: dict[str, set[str]] = {}
    for entry in translators(request.app.state.models):
        pair = PAIR.fullmatch(entry.name)
        if pair:
            found.setdefault(pair[1], set()).add(pair[2])
            found.setdefault(pair[2], set())
    return [{"code": code, "name": code, "targets": sorted(targets)} for code, targets in sorted(found.items())]


def translators(models: ModelTable) -> list[ModelEntry]:
    return [entry for entry in models if entry.task == "translate"]


def model_for(models: ModelTable, source: str, target: str) -> str:
    """The model named by the pair of languages; else the only translator whose languages are not known."""
    known = translators(models)
    if any(entry.name == f"{source}-{target}" for entry in known):
        return f"{source}-{target}"
    unnamed = [entry for entry in known if not PAIR.fullmatch(entry.name)]
    if len(unnamed) == 1:
        return unnamed[0].name
    pairs = ", ".join(entry.name for entry in known) or "none"
    param = "target" if any(entry.name.startswith(f"{source}-") for entry in known) else "source"
    raise ApiError(400, f"{param}: there is no model from {source} to {target}; models: {pairs}", param=param)


async def _body(request: Request) -> TranslateBody:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == FORM:
        fields = await BoundedRequest(request.scope, request.receive).fields(param="q")
        given = {name: [value for each, value in fields if each == name] for name, _ in fields}
        data: Any = {name: values if len(values) > 1 else values[0] for name, values in given.items()}
    elif kind == "application/json":
        data = await BoundedRequest(request.scope, request.receive).json()
    else:
        raise ApiError(415, f"content type {kind!r:.60}: send JSON or a form", param="Content-Type")
    return validated(TranslateBody, data)
