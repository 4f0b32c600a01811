"""/health, /metrics and /v1/models."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headway import __version__
from headway.serving.fields import BoundedRoute
from headway.serving.metrics import CONTENT_TYPE
from headway.serving.model_table import ModelEntry

router = APIRouter(route_class=BoundedRoute)


@router.get("/health")
async def health(request: Request) -> Response:
    """200 while every loaded model works; 503 with the reason otherwise, and while the server shuts down. Without a key
    where there is one, the status alone."""
    state = request.app.state
    models = {entry.name: model_health(entry) for entry in state.models}
    failing = [name for name, found in models.items() if found["status"] == "failing"]
    status = "stopping" if state.stopping else "failing" if failing else "ok"
    body = {
        "status": status,
        "version": __version__,
        "uptime_seconds": round(time.monotonic() - state.started, 1),
        "models": models,
    }
    if state.needs_key and "headway.client" not in request.scope:
        body = {"status": status}
    return JSONResponse(body, 200 if status == "ok" else 503)


def model_health(entry: ModelEntry) -> dict[str, Any]:
    if entry.served is None:
        return {"status": "unloaded", "running": 0, "waiting": 0}
    worker = entry.served.worker
    running, waiting = worker.counts
    reason = worker.failing if worker.alive else "its thread has ended"
    found: dict[str, Any] = {"status": "ok" if reason is None else "failing", "running": running, "waiting": waiting}
    return found if reason is None else {**found, "reason": reason}


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    return Response(request.app.state.metrics.text(), media_type=CONTENT_TYPE)


@router.get("/v1/models")
async def models(request: Request) -> Any:
    return {"object": "list", "data": [model_facts(entry) for entry in request.app.state.models]}


@router.get("/v1/models/{name:path}")
async def one_model(request: Request, name: str) -> Any:
    return model_facts(request.app.state.models.find(name))


def model_facts(entry: ModelEntry) -> dict[str, Any]:
    """OpenAI's fields, and the task; of a loaded model also its context and weights."""
    out: dict[str, Any] = {"id": entry.name, "object": "model", "created": entry.created, "owned_by": "headway"}
    out |= {"task": entry.task, "loaded": entry.served is not None, "bytes": entry.size}
    if entry.served is not None:
        out |= {"context": entry.served.context, "weights": entry.served.bundle.weights}
    return out
