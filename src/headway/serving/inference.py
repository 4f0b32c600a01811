"""POST /models/{name}: every task by the shape of Hugging Face's inference API, {"inputs", "parameters"} as JSON;
pictures and sound also as the raw body."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from headway.kinds.inputs import ConversationInput
from headway.kinds.predictions import VectorPrediction
from headway.serving.answers import first_texts
from headway.serving.api_errors import ApiError
from headway.serving.exchange import LargeAnswer, all_results, client_of, in_thread
from headway.serving.explanations import Question
from headway.serving.fields import BoundedRequest, BoundedRoute, validated
from headway.serving.inference_shapes import SHAPES, InferenceBody, TaskShape
from headway.serving.media import check_picture, check_sound, from_base64
from headway.serving.prediction_worker import PredictionTicket
from headway.serving.served import Served

router = APIRouter(route_class=BoundedRoute)
FEW = 8  # answers, which the event loop writes as JSON itself
CHECKS: dict[str, Callable[..., bytes]] = {"image": check_picture, "audio": check_sound}
SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": {"type": "object", "required": ["inputs"], "properties": {
                "inputs": {}, "parameters": {"type": "object"}, "explain": {"type": "boolean"}}}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        },
    }
}  # fmt: skip


@router.post("/models/{name:path}/pipeline/{task}", openapi_extra=SCHEMA)
async def pipeline(request: Request, name: str, task: str) -> Response:
    """As /models/{name}; the task is the model's."""
    return await infer(request, name)


@router.post("/models/{name:path}", openapi_extra=SCHEMA)
async def infer(request: Request, name: str) -> Response:
    async with request.app.state.models.use(name) as served:
        shape = SHAPES.get(served.task.name)
        if shape is None:
            raise ApiError(400, f"model {name!r} is for task {served.task.name}, which this route does not have")
        body = await _body(request, shape)
        options = await in_thread(_options, shape, served, body)
        if isinstance(served.task.prediction_kind, VectorPrediction) and isinstance(body.inputs, dict):
            return JSONResponse(await _similarities(request, served, body.inputs, options))
        if shape.media == "text":
            texts, several = _texts(shape, body.inputs, served)
        else:
            texts, several = [await in_thread(CHECKS[shape.media], body.inputs, served.limits, param="inputs")], False
        if served.generates:
            found = await _generated(request, served, texts, options)
        else:
            found = await predict(request, served, texts, options)
        answers = [shape.answer(one, text, body.parameters) for one, text in zip(found, texts, strict=True)]
        headers = {}
        if body.explain:
            question = Question(served.name, value=texts[0], answer=found[0] if served.generates else None)
            headers["X-Explain"] = request.app.state.explanations.keep(question)
    if shape.picture:
        return Response(answers[0], media_type="image/png", headers=headers)
    whole = shape.whole(answers, several)
    if len(answers) > FEW:
        return await in_thread(LargeAnswer, whole, headers=headers)
    return JSONResponse(whole, headers=headers)


async def _body(request: Request, shape: TaskShape) -> InferenceBody:
    """JSON, or the raw bytes of a picture or a recording."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if shape.media != "text" and kind != "application/json":
        data = await request.body()
        if not data:
            raise ApiError(400, "inputs: the body is empty", param="inputs")
        return InferenceBody(inputs=data)
    if kind not in ("application/json", ""):
        raise ApiError(415, f"content type {kind!r:.60}: send JSON", param="Content-Type")
    given = await BoundedRequest(request.scope, request.receive).json()
    body = validated(InferenceBody, shape.gathered(given) if isinstance(given, dict) else given)
    if shape.media != "text":
        body.inputs = await in_thread(from_base64, body.inputs)
    return body


def _options(shape: TaskShape, served: Served, body: InferenceBody) -> dict[str, Any]:
    try:
        parameters = validated(shape.parameters, body.parameters or {})
    except ApiError as found:
        found.param = f"parameters.{found.param}" if found.param else "parameters"
        raise
    return shape.options(parameters, served.task)


def _texts(shape: TaskShape, inputs: Any, served: Served) -> tuple[list[Any], bool]:
    """(inputs of the task, whether several were given)"""
    several = isinstance(inputs, list)
    listed = inputs if several else [inputs]
    most = served.limits.inputs
    if not 0 < len(listed) <= most:
        raise ApiError(400, f"inputs: {len(listed)} of them; send from 1 to {most}", param="inputs")
    return [shape.read(value, f"inputs[{i}]" if several else "inputs") for i, value in enumerate(listed)], several


async def _similarities(request: Request, served: Served, inputs: Any, options: dict[str, Any]) -> list[float]:
    """Cosines of one sentence with others."""
    source, others = inputs.get("source_sentence"), inputs.get("sentences")
    if not isinstance(source, str) or not isinstance(others, list) or not all(isinstance(o, str) for o in others):
        raise ApiError(400, 'inputs: expected a text, or {"source_sentence": …, "sentences": […]}', param="inputs")
    if not 0 < len(others) < served.limits.inputs:
        raise ApiError(400, f"inputs: send from 1 to {served.limits.inputs - 1} sentences", param="inputs.sentences")
    first, *rest = await predict(request, served, [source, *others], {**options, "normalize": True})
    return [sum(a * b for a, b in zip(first, other, strict=True)) for other in rest]


async def predict(request: Request, served: Served, inputs: Sequence[Any], options: dict[str, Any]) -> list[Any]:
    """A prediction for each input; inputs of requests that wait together are predicted in one batch."""
    for number, value in enumerate(inputs):
        served.check_length(value, param=f"inputs[{number}]" if len(inputs) > 1 else "inputs")
    ticket = PredictionTicket(inputs, options, client=client_of(request))
    (found,) = await all_results(request, served, ticket)
    return found


async def _generated(request: Request, served: Served, texts: Sequence[str], options: dict[str, Any]) -> list[str]:
    chat = isinstance(served.task.input_kind, ConversationInput)

    def encode(text: str) -> list[int]:
        return served.chat_ids([{"role": "user", "content": text}]) if chat else served.prompt_ids(text)

    encoders = [partial(encode, text) for text in texts]
    return await first_texts(request, served, encoders, options, param="inputs", chat=chat)
