"""What the routes that generate text share: a request to the worker, and the parts of its answer."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request

from headway.generation import Event
from headway.preprocess.text import Tokenizer
from headway.serving.api_errors import ApiError
from headway.serving.exchange import client_of, in_thread, results, together, unless_gone
from headway.serving.explanations import Question
from headway.serving.generation_fields import bias_filters
from headway.serving.generation_worker import GenerationTicket
from headway.serving.served import Served

REASONS = {"eos": "stop", "stop": "stop", "complete": "stop", "exhausted": "stop", "length": "length"}
LOWEST = -9999.0  # the log-probability of an impossible token, which JSON cannot say


@dataclass(frozen=True)
class Asked:
    ticket: GenerationTicket
    prompt: list[int]
    n: int
    separate: bool  # each choice is an answer of its own; False: greedy, so that all choices are the same answer
    explain: Callable[[str], str] | None = None  # answer → address of its page

    def explained(self, answer: str) -> dict[str, Any]:
        return {} if self.explain is None else {"explain": self.explain(answer)}


async def ask(
    request: Request,
    served: Served,
    encode: Callable[[], list[int]],
    options: Mapping[str, Any],
    *,
    param: str,
    n: int = 1,
    top: int = 0,
    bias: dict[str, float] | None = None,
    chat: bool = False,
    explain: bool = False,
    stream: bool = False,
) -> Asked:
    """The request as a ticket, checked: what is wrong with the prompt is named `param`."""
    ids = await in_thread(encode, param=param)
    try:
        filters = bias_filters(bias, vocab=served.model.vocab_size or 0)
    except ValueError as error:
        raise ApiError(400, f"logit_bias: {error}", param="logit_bias") from None

    def make() -> tuple[Any, bool]:
        settings = served.settings({**options, "top_logprobs": top}, ids=ids, chat=chat)
        separate = n > 1 and (settings.temperature > 0 or settings.beams > 1)
        if separate:
            settings = served.settings({**options, "top_logprobs": top, "n": n}, ids=ids, chat=chat)
        return served.request(ids, settings, filters=filters), separate

    named = _named(options, param)
    made, separate = await in_thread(make, param=named, in_turn=named == "response_format")
    served.metrics.prompt.inc(len(ids))
    ticket = GenerationTicket(made, client=client_of(request), stream=stream)
    page = None
    if explain:
        page = request.app.state.explanations.keeper(Question(served.name, ids=ids))
    return Asked(ticket, ids, n, separate or n == 1, page)


async def first_texts(
    request: Request,
    served: Served,
    encoders: Iterable[Callable[[], list[int]]],
    options: Mapping[str, Any],
    *,
    param: str,
    chat: bool = False,
) -> list[str]:
    """The first answer to each of several prompts, in one session."""

    async def one(encode: Callable[[], list[int]]) -> str:
        asked = await ask(request, served, encode, options, param=param, chat=chat)
        return "".join([event.text async for event in results(served, asked.ticket) if event.sample == 0])

    return await unless_gone(
        request, together([partial(one, encode) for encode in encoders], most=served.limits.running)
    )


def _named(options: Mapping[str, Any], param: str) -> str:
    """The field that a refusal of the settings is most likely about."""
    return "response_format" if "json_schema" in options or "regex" in options else param


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(12)}"


def finish_reason(event: Event) -> str:
    return REASONS.get(event.finished_by or "", "stop")


def usage(asked: Asked, generated: int) -> dict[str, Any]:
    prompt = len(asked.prompt)
    return {"prompt_tokens": prompt, "completion_tokens": generated, "total_tokens": prompt + generated}


def token_count(events: Iterable[Event]) -> int:
    """Tokens of answers: an event has one, or the whole answer of a beam search."""
    return sum(
        1 if event.token is not None else len(event.hypothesis.ids) if event.hypothesis is not None else 0
        for event in events
    )


def finite(logprob: float | None) -> float:
    return LOWEST if logprob is None or not math.isfinite(logprob) else logprob


def token_logprob(
    tokenizer: Tokenizer, token: int | None, logprob: float | None, top: tuple[tuple[int, float], ...]
) -> dict[str, Any]:
    """A token as in OpenAI's chat completions."""
    return {
        **_token(tokenizer, token or 0, logprob),
        "top_logprobs": [_token(tokenizer, id, value) for id, value in top],
    }


def _token(tokenizer: Tokenizer, id: int, logprob: float | None) -> dict[str, Any]:
    data = tokenizer.bytes_of(id)
    return {"token": data.decode(errors="replace"), "logprob": finite(logprob), "bytes": list(data)}
