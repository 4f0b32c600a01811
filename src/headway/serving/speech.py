"""/v1/audio/transcriptions and /v1/audio/translations: OpenAI's multipart form with a sound file."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from pydantic import Field

from headway.serving.api_errors import ApiError
from headway.serving.exchange import in_thread
from headway.serving.fields import Body, BoundedRequest, BoundedRoute, Ignored, Name, Unsupported, validated
from headway.serving.inference import predict
from headway.serving.media import check_sound
from headway.serving.served import Served
from headway.tasks.transcripts import Transcript, Writer

router = APIRouter(route_class=BoundedRoute)
LISTED = "timestamp_granularities[]"
Format = Literal["json", "text", "srt", "verbose_json", "vtt"]


class SpeechForm(Body):
    model: Name
    language: Annotated[str, Field(min_length=2, max_length=32)] | None = None
    prompt: Unsupported = None
    response_format: Format = "json"
    temperature: Annotated[float, Field(ge=0, le=1, strict=False)] | None = None
    timestamp_granularities: list[Literal["word", "segment"]] = Field(default_factory=list, max_length=2)
    stream: Unsupported = None
    include: Ignored = None
    chunking_strategy: Ignored = None
    user: Ignored = None


SCHEMA = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file", "model"],
                    "properties": {
                        "file": {"type": "string", "format": "binary"},
                        "model": {"type": "string"},
                        "language": {"type": "string"},
                        "response_format": {"enum": ["json", "text", "srt", "verbose_json", "vtt"]},
                        "temperature": {"type": "number", "minimum": 0, "maximum": 1},
                    },
                }
            }
        },
    }
}


@router.post("/v1/audio/transcriptions", openapi_extra=SCHEMA)
async def transcriptions(request: Request) -> Response:
    return await transcribe(request, "transcribe")


@router.post("/v1/audio/translations", openapi_extra=SCHEMA)
async def translations(request: Request) -> Response:
    return await transcribe(request, "translate")


async def transcribe(request: Request, task: str) -> Response:
    form, data = await _form(request)
    async with request.app.state.models.use(form.model) as served:
        served.require_task("transcribe")
        await in_thread(check_sound, data, served.limits, param="file")
        options: dict[str, Any] = {"task": task} if task == "translate" else {}
        options |= {name: v for name in ("language", "temperature") if (v := getattr(form, name)) is not None}
        if "word" in form.timestamp_granularities:
            options["words"] = True
        (found,) = await predict(request, served, [data], options)
        return _formatted(found, form, served, task)


async def _form(request: Request) -> tuple[SpeechForm, bytes]:
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ApiError(415, "send the recording as a field `file` of multipart/form-data", param="Content-Type")
    fields = await BoundedRequest(request.scope, request.receive).fields(param="file", files=1)
    data = next((value for name, value in fields if name == "file"), None)
    if not isinstance(data, bytes):
        raise ApiError(400, "file: it is required, as a file", param="file")
    given: dict[str, Any] = {name: value for name, value in fields if isinstance(value, str) and name != LISTED}
    listed = [value for name, value in fields if name == LISTED]
    return validated(SpeechForm, given | ({"timestamp_granularities": listed} if listed else {})), data


def _formatted(found: Transcript, form: SpeechForm, served: Served, task: str) -> Response:
    text = found.text.strip()
    match form.response_format:
        case "json":
            return JSONResponse({"text": text})
        case "text":
            return PlainTextResponse(text + "\n")
        case "srt" | "vtt":
            writer = Writer(form.response_format)
            return PlainTextResponse(writer.begin() + "".join(map(writer.add, found.segments)) + writer.finish(found))
    whole = found.to_dict()
    end = max((segment.end for segment in found.segments), default=0.0)
    out: dict[str, Any] = {"task": task, "language": found.language or "", "duration": end, "text": text}
    out["segments"] = whole["segments"]
    if "word" in form.timestamp_granularities:
        words = [word for segment in found.segments for word in segment.words or ()]
        out["words"] = [{"word": word.text.strip(), "start": word.start, "end": word.end} for word in words]
    return JSONResponse(out)
