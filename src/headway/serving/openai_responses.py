"""/v1/responses, stateless: nothing is stored, so a conversation is sent whole each time."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from headway.generation import Event
from headway.serving.answers import Asked, ask, finish_reason, new_id, token_count
from headway.serving.exchange import respond, results
from headway.serving.fields import Body, BoundedRoute, Ignored, Text, Tokens, Unsupported
from headway.serving.generation_fields import Message, ResponseFormat, Sampling
from headway.serving.served import Served

router = APIRouter(route_class=BoundedRoute)


class TextOptions(Body):
    format: ResponseFormat | None = None
    verbosity: Ignored = None


class ResponsesBody(Sampling):
    input: Text | Annotated[list[Message], Field(min_length=1, max_length=1024)]
    instructions: Text | None = None
    max_output_tokens: Tokens | None = None
    text: TextOptions | None = None
    previous_response_id: Unsupported = None
    conversation: Unsupported = None
    prompt: Unsupported = None
    tools: Unsupported = None
    tool_choice: Ignored = None
    parallel_tool_calls: Ignored = None
    background: Unsupported = None
    reasoning: Ignored = None
    include: Ignored = None
    truncation: Ignored = None  # nothing is cut: "disabled" always
    stream_options: Ignored = None
    max_tool_calls: Ignored = None
    top_logprobs: Unsupported = None

    def messages(self) -> list[dict[str, str]]:
        given = [Message(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        system = [] if not self.instructions else [{"role": "system", "content": self.instructions}]
        return [*system, *(message.plain() for message in given)]


@router.post("/v1/responses")
async def responses(request: Request, body: ResponsesBody) -> Response:
    async def make(served: Served) -> ResponseAnswer:
        served.require_generation()
        options = body.sampling_options()
        if body.max_output_tokens is not None:
            options["max_new_tokens"] = body.max_output_tokens
        if body.text is not None and body.text.format is not None:
            options |= body.text.format.constraint()
        messages = body.messages()
        asked = await ask(request, served, lambda: served.chat_ids(messages), options, param="input", chat=True,
                          explain=bool(body.explain), stream=bool(body.stream))  # fmt: skip
        return ResponseAnswer(served, body, asked)

    return await respond(request, body.model, make, stream=bool(body.stream))


class ResponseAnswer:
    def __init__(self, served: Served, body: ResponsesBody, asked: Asked) -> None:
        self.served, self.body, self.asked = served, body, asked
        self.id, self.item, self.created = new_id("resp"), new_id("msg"), int(time.time())
        self.events: list[Event] = []
        self._number = -1

    def text(self) -> str:
        text = "".join(event.text for event in self.events)
        return text.strip() if self.served.plain_chat else text

    async def whole(self) -> dict[str, Any]:
        async for event in results(self.served, self.asked.ticket):
            self.events.append(event)
        return self._response(done=True)

    async def chunks(self) -> AsyncIterator[bytes]:
        shown = 0
        place = {"item_id": self.item, "output_index": 0, "content_index": 0}
        async for event in results(self.served, self.asked.ticket):
            if not self.events:
                for kind in ("created", "in_progress"):
                    yield self._event(f"response.{kind}", response=self._response(done=False))
                yield self._event("response.output_item.added", output_index=0, item=self._message(done=False))
                yield self._event("response.content_part.added", **place, part=self._part(""))
            self.events.append(event)
            text = self.text()
            if len(text) > shown:
                yield self._event("response.output_text.delta", **place, delta=text[shown:], logprobs=[])
                shown = len(text)
        text = self.text()
        yield self._event("response.output_text.done", **place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **place, part=self._part(text))
        yield self._event("response.output_item.done", output_index=0, item=self._message(done=True))
        final = self._response(done=True)
        yield self._event(f"response.{final['status']}", response=final)

    def _event(self, kind: str, **fields: Any) -> bytes:
        self._number += 1
        value = {"type": kind, "sequence_number": self._number, **fields}
        return f"event: {kind}\ndata: {json.dumps(value, ensure_ascii=False, allow_nan=False)}\n\n".encode()

    def _part(self, text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _message(self, *, done: bool) -> dict[str, Any]:
        content = [self._part(self.text())] if done else []
        status = self._status() if done else "in_progress"
        return {"id": self.item, "type": "message", "role": "assistant", "status": status, "content": content}

    def _status(self) -> str:
        return "incomplete" if finish_reason(self.events[-1]) == "length" else "completed"

    def _response(self, *, done: bool) -> dict[str, Any]:
        status = self._status() if done else "in_progress"
        cut = {"reason": "max_output_tokens"} if status == "incomplete" else None
        settings = self.asked.ticket.request.settings
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "error": None,
            "incomplete_details": cut,
            "instructions": self.body.instructions,
            "max_output_tokens": self.body.max_output_tokens,
            "metadata": {},
            "model": self.body.model,
            "output": [self._message(done=True)] if done else [],
            "parallel_tool_calls": False,
            "previous_response_id": None,
            "store": False,
            "temperature": settings.temperature,
            "text": {"format": {"type": "text"}},
            "tool_choice": "none",
            "tools": [],
            "top_p": settings.top_p,
            "truncation": "disabled",
            **({"usage": self._usage(), **self.asked.explained(self.text())} if done else {}),
        }

    def _usage(self) -> dict[str, Any]:
        before, after = len(self.asked.prompt), token_count(self.events)
        return {
            "input_tokens": before,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": after,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": before + after,
        }
