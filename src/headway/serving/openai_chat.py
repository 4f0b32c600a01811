"""/v1/chat/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Request, Response

from headway.generation import Event
from headway.serving.answers import Asked, ask, finish_reason, new_id, token_count, token_logprob, usage
from headway.serving.api_errors import ApiError
from headway.serving.exchange import DONE, respond, results, sse
from headway.serving.fields import BoundedRoute
from headway.serving.generation_fields import ChatBody
from headway.serving.served import Served

router = APIRouter(route_class=BoundedRoute)


@router.post("/v1/chat/completions")
async def chat_completions(request: Request, body: ChatBody) -> Response:
    return await answer_chat(request, body, body.model)


@router.post("/models/{name:path}/v1/chat/completions")
async def chat_completions_of(request: Request, name: str, body: ChatBody) -> Response:
    """The model is named by the path, as clients of Hugging Face's inference do; the body's is not read."""
    return await answer_chat(request, body, name)


async def answer_chat(request: Request, body: ChatBody, name: str) -> Response:
    if body.top_logprobs and not body.logprobs:
        raise ApiError(400, "top_logprobs: set logprobs to true with it", param="top_logprobs")

    async def make(served: Served) -> ChatAnswer:
        return ChatAnswer(served, body, await _ask(request, served, body), name)

    return await respond(request, name, make, stream=bool(body.stream))


async def _ask(request: Request, served: Served, body: ChatBody) -> Asked:
    served.require_generation()
    messages = [message.plain() for message in body.messages]
    options = body.options()
    if body.length is not None:
        options["max_new_tokens"] = body.length
    if body.response_format is not None:
        options |= body.response_format.constraint()
    top = (body.top_logprobs or 0) if body.logprobs else 0
    return await ask(
        request, served, lambda: served.chat_ids(messages), options, param="messages", n=body.n or 1, top=top,
        bias=body.logit_bias, chat=True, explain=bool(body.explain), stream=bool(body.stream),
    )  # fmt: skip


class ChatAnswer:
    def __init__(self, served: Served, body: ChatBody, asked: Asked, name: str) -> None:
        self.served, self.body, self.asked = served, body, asked
        self.id, self.created, self.name = new_id("chatcmpl"), int(time.time()), name
        self._begun: set[int] = set()

    def events(self) -> AsyncIterator[Event]:
        return results(self.served, self.asked.ticket)

    def text(self, event: Event) -> str:
        """A model without a template continues "Assistant:", so that its answer begins with a space."""
        text = event.text
        if self.served.plain_chat and event.sample not in self._begun:
            text = text.lstrip()
        if text:
            self._begun.add(event.sample)
        return text

    def logprobs(self, events: list[Event]) -> dict[str, Any] | None:
        if not self.body.logprobs:
            return None
        ends = self.asked.ticket.request.criteria.ends
        tokens = [event for event in events if event.token is not None and event.token not in ends]
        content = [token_logprob(self.served.tokenizer, e.token, e.logprob, e.top) for e in tokens]
        return {"content": content, "refusal": None}

    async def whole(self) -> dict[str, Any]:
        texts: dict[int, list[str]] = {}
        found: dict[int, list[Event]] = {}
        async for event in self.events():
            found.setdefault(event.sample, []).append(event)
            texts.setdefault(event.sample, []).append(self.text(event))
        choices: list[dict[str, Any]] = []
        for index in range(self.asked.n):
            sample = index if self.asked.separate else 0
            message = {"role": "assistant", "content": "".join(texts[sample]).rstrip() if self.served.plain_chat
                       else "".join(texts[sample]), "refusal": None}  # fmt: skip
            choices.append(
                {
                    "index": index,
                    "message": message,
                    "logprobs": self.logprobs(found[sample]),
                    "finish_reason": finish_reason(found[sample][-1]),
                }
            )
        tokens = sum(map(token_count, found.values()))
        out = {
            "id": self.id,
            "object": "chat.completion",
            "created": self.created,
            "model": self.name,
            "choices": choices,
            "usage": usage(self.asked, tokens),
        }
        return out | self.asked.explained(choices[0]["message"]["content"])

    async def chunks(self) -> AsyncIterator[bytes]:
        tokens, held, texts = 0, dict[int, str](), list[str]()
        async for event in self.events():
            if not tokens:
                for index in range(self.asked.n):
                    yield sse(self._chunk(index, {"role": "assistant", "content": ""}))
            tokens += event.token is not None
            text = held.pop(event.sample, "") + self.text(event)
            if self.served.plain_chat:  # the spaces at the end are not part of an answer
                text, held[event.sample] = text.rstrip(), text[len(text.rstrip()) :]
            texts += [text] if event.sample == 0 else []
            logprobs = self.logprobs([event])
            if text or (logprobs and logprobs["content"]):
                for index in self._indices(event):
                    yield sse(self._chunk(index, {"content": text}, logprobs=logprobs))
            if event.finished_by is not None:
                for index in self._indices(event):
                    yield sse(self._chunk(index, {}, reason=finish_reason(event)))
        explained = self.asked.explained("".join(texts))
        if explained:
            yield sse(self._chunk(0, {}) | {"choices": []} | explained)
        if self.body.includes_usage:
            yield sse(self._chunk(0, {}) | {"choices": [], "usage": usage(self.asked, tokens)})
        yield DONE

    def _indices(self, event: Event) -> range | list[int]:
        return [event.sample] if self.asked.separate else range(self.asked.n)

    def _chunk(self, index: int, delta: dict[str, Any], *, logprobs: Any = None, reason: str | None = None) -> Any:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.name,
            "choices": [choice],
        }
