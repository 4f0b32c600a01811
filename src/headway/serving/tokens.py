"""/tokenize and /detokenize, by the fields of llama.cpp's server (content) and vLLM's (prompt)."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from headway.serving.api_errors import ApiError
from headway.serving.exchange import LargeAnswer, in_thread
from headway.serving.fields import Body, BoundedRoute, Id, Name, Text
from headway.serving.served import Served

router = APIRouter(route_class=BoundedRoute)


class TokenizeBody(Body):
    model: Name
    content: Text | None = None
    prompt: Text | None = None
    add_special: bool | None = None
    add_special_tokens: bool | None = None
    with_pieces: bool | None = None


class DetokenizeBody(Body):
    model: Name
    tokens: Annotated[list[Id], Field(max_length=1_000_000)]


@router.post("/tokenize")
async def tokenize(request: Request, body: TokenizeBody) -> Any:
    text = body.content if body.content is not None else body.prompt
    if text is None:
        raise ApiError(400, "content: it is required", param="content")
    special = bool(body.add_special or body.add_special_tokens)
    async with request.app.state.models.use(body.model) as served:
        tokenizer = _tokenizer(served)
        served.check_length(text, param="content")

        def answer() -> Response:
            ids = tokenizer.encode(text, special=special)
            out: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": served.context}
            if body.with_pieces:
                pieces = zip(ids, tokenizer.tokens(ids), strict=True)
                out["tokens"] = [{"id": id, "piece": piece} for id, piece in pieces]
            return LargeAnswer(out)

        return await in_thread(answer, param="content")


@router.post("/detokenize")
async def detokenize(request: Request, body: DetokenizeBody) -> Any:
    async with request.app.state.models.use(body.model) as served:
        tokenizer = _tokenizer(served)
        wrong = next((id for id in body.tokens if id >= len(tokenizer)), None)
        if wrong is not None:
            raise ApiError(400, f"tokens: {wrong} is not in the vocabulary of {len(tokenizer)}", param="tokens")
        text = await in_thread(tokenizer.decode, body.tokens, skip_special=False)
    return {"content": text, "prompt": text}


def _tokenizer(served: Served) -> Any:
    if not served.task.reads_text or served.tokenizer is None:
        raise ApiError(400, f"model {served.name!r} has no tokenizer", param="model")
    return served.tokenizer
