"""/v1/images/generations."""

from __future__ import annotations

import base64
import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import Field

from headway.serving.api_errors import ApiError
from headway.serving.fields import SEED, Body, BoundedRoute, Ignored, Name, Seed, Text, Unsupported
from headway.serving.inference import predict
from headway.serving.inference_shapes import check_size
from headway.serving.media import png

router = APIRouter(route_class=BoundedRoute)


class ImagesBody(Body):
    model: Name
    prompt: Text
    n: Annotated[int, Field(ge=1, le=10)] | None = None
    size: Annotated[str, Field(pattern=r"^(auto|[1-9]\d{0,4}x[1-9]\d{0,4})$")] | None = None
    response_format: Literal["b64_json", "url"] | None = None
    output_format: Literal["png"] | None = None
    background: Unsupported = None
    quality: Ignored = None
    style: Ignored = None
    moderation: Ignored = None
    stream: Unsupported = None
    user: Ignored = None
    seed: Seed | None = None
    steps: Annotated[int, Field(ge=1, le=1000)] | None = None
    guidance: Annotated[float, Field(ge=0, le=100)] | None = None


@router.post("/v1/images/generations")
async def images(request: Request, body: ImagesBody) -> Any:
    async with request.app.state.models.use(body.model) as served:
        served.require_task("draw")
        if body.size not in (None, "auto"):
            width, height = map(int, body.size.split("x"))
            check_size(served.task, width, height)
        options: dict[str, Any] = {"n": body.n or 1}
        if body.seed is not None:
            options["seed"] = body.seed & (SEED >> 1)
        for name in ("steps", "guidance"):
            if (value := getattr(body, name)) is not None:
                if name not in served.task.prediction_kind.options:
                    raise ApiError(400, f"{name}: the model draws without it; leave it out", param=name)
                options[name] = value
        (found,) = await predict(request, served, [body.prompt], options)
    encoded = [base64.b64encode(png(each)).decode() for each in (found if isinstance(found, list) else [found])]
    if body.response_format == "url":
        data = [{"url": f"data:image/png;base64,{each}"} for each in encoded]
    else:
        data = [{"b64_json": each} for each in encoded]
    return {"created": int(time.time()), "data": data, "output_format": "png"}
