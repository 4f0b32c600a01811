"""The application: routes, errors and the guard around them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from headway import __version__
from headway.serving import (
    embeddings,
    explanations,
    inference,
    openai_chat,
    openai_completions,
    openai_responses,
    pictures,
    runs,
    speech,
    studio,
    system,
    tokens,
    translate,
)
from headway.serving.api_errors import ApiError, error_body
from headway.serving.explanations import Explanations
from headway.serving.fields import body_kind, validation_error
from headway.serving.guard import Guard
from headway.serving.limits import ServerLimits
from headway.serving.metrics import Metrics
from headway.serving.model_table import ModelTable
from headway.serving.runs_table import RunTable

MODULES = (  # in the order of matching: /models/{name} after what begins like it
    openai_chat, openai_completions, openai_responses, embeddings, speech, pictures, tokens, translate, inference,
    explanations, runs, studio, system,
)  # fmt: skip


def create_app(
    models: ModelTable,
    *,
    limits: ServerLimits,
    metrics: Metrics,
    keys: Sequence[str] = (),
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    runs: RunTable | None = None,
    add_routes: Callable[[FastAPI], None] | None = None,
) -> FastAPI:
    """`runs`: those that the page shows; `add_routes` adds others than those of MODULES, for an engine of its own."""
    app = FastAPI(title="Headway", version=__version__, docs_url=None, redoc_url=None, redirect_slashes=False)
    app.state.models, app.state.limits, app.state.metrics = models, limits, metrics
    app.state.explanations = Explanations(limits.explanations)
    app.state.started, app.state.stopping = time.monotonic(), False
    app.state.needs_key = bool(keys)
    app.state.runs, app.state.streams, app.state.checking = runs, 0, asyncio.Semaphore(1)
    if add_routes is not None:
        add_routes(app)
    else:
        for module in MODULES:
            app.include_router(module.router)
    app.add_middleware(Guard, limits=limits, metrics=metrics, keys=keys, hosts=hosts, origins=origins)
    app.exception_handler(ApiError)(_api_error)
    app.exception_handler(RequestValidationError)(_validation_error)
    app.exception_handler(StarletteHTTPException)(_http_error)
    return app


async def _api_error(request: Request, error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status_code, headers=error.headers)


async def _validation_error(request: Request, error: RequestValidationError) -> Response:
    return await _api_error(request, validation_error(list(error.errors()), body_kind(request.scope.get("route"))))


async def _http_error(request: Request, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(error_body(error.status_code, message), error.status_code, headers=error.headers)
