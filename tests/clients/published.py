"""Responses against OpenAI's published schema: the types of the `openai` package, which are generated from it, checked
strictly on the raw JSON; and the OpenAPI file itself (openapi.json of openai/openai-openapi), if OPENAPI names it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.request import Request, urlopen

from openai.types import Completion, CreateEmbeddingResponse, ImagesResponse, Model
from openai.types.audio import Transcription, TranscriptionVerbose
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter, ValidationError

HELLO = [{"role": "user", "content": "hello"}]
CHAT = {"model": "writer", "messages": HELLO, "max_tokens": 5, "logprobs": True, "top_logprobs": 2, "n": 2, "seed": 1}
TEXT = {"model": "writer", "prompt": "The import", "max_tokens": 5, "logprobs": 2}  # with echo, OpenAI's server itself
# and this one say null for the first token, which has no log-probability and which the schema does not have
INPUT = {"model": "writer", "input": "hello", "max_output_tokens": 5, "instructions": "Be brief."}
VECTORS = {"model": "vectors", "input": ["hello", "May"]}
DRAW = {"model": "draw", "prompt": "a red circle", "steps": 2, "seed": 1}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}

# (path, body, type of the package, component of the OpenAPI file); a body with `stream` is checked event by event
CASES: list[tuple[str, dict[str, Any] | None, Any, str]] = [
    ("/v1/chat/completions", CHAT, ChatCompletion, "CreateChatCompletionResponse"),
    ("/v1/chat/completions", {**CHAT, **USAGE}, ChatCompletionChunk, "CreateChatCompletionStreamResponse"),
    ("/v1/completions", TEXT, Completion, "CreateCompletionResponse"),
    ("/v1/completions", {**TEXT, **USAGE}, Completion, "CreateCompletionResponse"),
    ("/v1/responses", INPUT, Response, "Response"),
    ("/v1/responses", {**INPUT, "stream": True}, ResponseStreamEvent, "ResponseStreamEvent"),
    ("/v1/embeddings", VECTORS, CreateEmbeddingResponse, "CreateEmbeddingResponse"),
    ("/v1/images/generations", DRAW, ImagesResponse, "ImagesResponse"),
    ("/v1/models/writer", None, Model, "Model"),
]
SPEECH = [("json", Transcription, "CreateTranscriptionResponseJson"),
          ("verbose_json", TranscriptionVerbose, "CreateTranscriptionResponseVerboseJson")]  # fmt: skip


def fetched(url: str, data: bytes | None = None, kind: str = "application/json") -> str:
    with urlopen(Request(url, data, {"Content-Type": kind}), timeout=120) as reply:
        return reply.read().decode()


def values(url: str, path: str, body: dict[str, Any] | None) -> Iterator[Any]:
    text = fetched(url + path, None if body is None else json.dumps(body).encode())
    if not (body or {}).get("stream"):
        yield json.loads(text)
        return
    for line in text.splitlines():
        if line.startswith("data: {"):
            value = json.loads(line.removeprefix("data: "))
            if path == "/v1/completions":  # null before the last event, which OpenAI's server sends, not its schema
                value["choices"] = [
                    {**choice, "finish_reason": choice["finish_reason"] or "stop"} for choice in value["choices"]
                ]
            yield value


def transcriptions(url: str, sound: bytes) -> Iterator[tuple[str, Any, Any, str]]:
    for form, kind, component in SPEECH:
        fields = {"model": b"transcribe", "response_format": form.encode(), 'file"; filename="a.wav': sound}
        head = b'--part\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
        data = b"".join(head % (name.encode(), value) for name, value in fields.items()) + b"--part--\r\n"
        text = fetched(f"{url}/v1/audio/transcriptions", data, "multipart/form-data; boundary=part")
        yield f"/v1/audio/transcriptions {form}", json.loads(text), kind, component


def kind_of(kind: Any, value: Any) -> Any:
    """Of a union of events, the one with the value's type."""
    members = get_args(get_args(kind)[0]) if kind is ResponseStreamEvent else ()
    return next((each for each in members if value["type"] in get_args(each.model_fields["type"].annotation)), kind)


class Published:
    """Both checks of one value; `faults` are empty where it is valid."""

    def __init__(self, openapi: str | None) -> None:
        self.components = None
        if openapi:
            self.components = nullable(json.loads(Path(openapi).read_text(encoding="utf-8"))["components"])

    def faults(self, value: Any, kind: Any, component: str) -> list[str]:
        out = []
        try:
            TypeAdapter(kind_of(kind, value)).validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            out += [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]]
        if self.components is not None:
            from jsonschema import Draft202012Validator
            from jsonschema.exceptions import best_match

            schema = {"$ref": f"#/components/schemas/{self.named(component, value)}", "components": self.components}
            for error in Draft202012Validator(schema).iter_errors(value):
                deepest = best_match([error]) or error
                out.append(f"{component} {'.'.join(map(str, deepest.absolute_path))}: {deepest.message:.200}")
        return out

    def named(self, component: str, value: Any) -> str:
        """Of a union of events, the one with the value's type."""
        for each in self.components["schemas"][component].get("anyOf", []):
            name = each["$ref"].rpartition("/")[2]
            if value["type"] in self.components["schemas"][name]["properties"]["type"].get("enum", []):
                return name
        return component


def nullable(schema: Any) -> Any:
    """The file says `nullable: true` in places, which is OpenAPI 3.0 and unknown to JSON Schema."""
    if isinstance(schema, list):
        return [nullable(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    out = {name: nullable(each) for name, each in schema.items()}
    if out.get("nullable") is True:
        del out["nullable"]
        return {"anyOf": [out, {"type": "null"}]}
    return out


def check(url: str, sound: bytes) -> int:
    """The number of values that were checked; raises if one is not valid, or if a spoilt one is."""
    published = Published(os.environ.get("OPENAPI"))
    found = [
        (f"{path}{' streamed' if (body or {}).get('stream') else ''}", value, kind, name)
        for path, body, kind, name in CASES
        for value in values(url, path, body)
    ]
    found += transcriptions(url, sound)
    faults = [(path, wrong) for path, value, kind, name in found if (wrong := published.faults(value, kind, name))]
    assert not faults, json.dumps(dict(reversed(faults)), indent=1)
    for path, value, kind, name in found:  # negative control: without a required field each of them is refused
        field = next(field for field in ("id", "sequence_number", "object", "created", "text") if field in value)
        spoilt = {key: each for key, each in value.items() if key != field}
        assert published.faults(spoilt, kind, name), f"{path}: the check accepts it without {field}"
    return len(found)
