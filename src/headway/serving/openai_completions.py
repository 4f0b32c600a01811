"""/v1/completions: one or several prompts, as texts or token ids; `echo` with `logprobs` scores the prompt itself."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from headway.generation import Event
from headway.serving.answers import Asked, ask, finish_reason, finite, new_id, token_count
from headway.serving.api_errors import ApiError
from headway.serving.exchange import DONE, client_of, in_thread, respond, results, sse, together
from headway.serving.fields import BoundedRoute
from headway.serving.generation_fields import CompletionBody
from headway.serving.generation_worker import ScoreTicket
from headway.serving.served import Served

router = APIRouter(route_class=BoundedRoute)
Scores = list[tuple[float, tuple[tuple[int, float], ...]]]


@router.post("/v1/completions")
async def completions(request: Request, body: CompletionBody) -> Response:
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise ApiError(400, "best_of: answers are not ranked here; leave it out, or set it to n", param="best_of")
    if body.stream and body.echo:
        raise ApiError(400, "echo: it is not streamed; leave stream out", param="echo")
    if len(body.prompts()) * (body.n or 1) > 128:
        raise ApiError(400, f"prompt: {len(body.prompts())} prompts with n {body.n or 1} are more than 128 answers",
                       param="prompt")  # fmt: skip

    async def make(served: Served) -> CompletionAnswer:
        served.require_generation()
        if body.echo and served.model.reads_source:
            raise ApiError(400, f"echo: model {served.name!r} reads a source, which its answer does not continue",
                           param="echo")  # fmt: skip
        answer = CompletionAnswer(request, served, body)
        await answer.prepare()
        return answer

    return await respond(request, body.model, make, stream=bool(body.stream))


class Prompt:
    """One of the prompts, with its answers."""

    def __init__(self, ids: list[int], asked: Asked | None, scored: ScoreTicket | None) -> None:
        self.ids, self.asked, self.scored = ids, asked, scored
        self.scores: Scores = []
        self.events: dict[int, list[Event]] = {}


class CompletionAnswer:
    def __init__(self, request: Request, served: Served, body: CompletionBody) -> None:
        self.request, self.served, self.body = request, served, body
        self.id, self.created, self.n = new_id("cmpl"), int(time.time()), body.n or 1
        self.prompts: list[Prompt] = []

    async def prepare(self) -> None:
        body, served = self.body, self.served
        options = body.options()
        if body.max_tokens:
            options["max_new_tokens"] = body.max_tokens
        elif body.max_tokens is None and not served.model.reads_source:
            options["max_new_tokens"] = 16  # OpenAI's
        if body.response_format is not None:
            options |= body.response_format.constraint()
        for number, prompt in enumerate(body.prompts()):
            param = "prompt" if len(body.prompts()) == 1 else f"prompt[{number}]"
            asked = None
            if body.max_tokens == 0:
                ids = await in_thread(self._encoder(prompt), param=param)
                self._check(ids, param)
            else:
                if body.seed is not None:
                    options["seed"] = (body.seed + number) & (2**63 - 1)
                asked = await ask(
                    self.request, served, self._encoder(prompt), options, param=param, n=self.n,
                    top=body.logprobs or 0, bias=body.logit_bias, explain=bool(body.explain),
                    stream=bool(body.stream),
                )  # fmt: skip
                ids = asked.prompt
            scored = None
            if body.echo and body.logprobs is not None:
                scored = ScoreTicket(ids, top=body.logprobs, client=client_of(self.request))
            self.prompts.append(Prompt(ids, asked, scored))

    def _encoder(self, prompt: str | list[int]) -> Callable[[], list[int]]:
        if isinstance(prompt, str):
            return lambda: self.served.prompt_ids(prompt)
        return lambda: prompt

    def _check(self, ids: list[int], param: str) -> None:
        vocab, context = self.served.model.vocab_size or 0, self.served.model.max_context
        wrong = next((token for token in ids if token >= vocab), None)
        if wrong is not None:
            raise ApiError(400, f"{param} contains id {wrong}; the vocabulary has {vocab}", param=param)
        if context is not None and len(ids) > context:
            raise ApiError(400, f"{param} has {len(ids)} tokens, but the model's context is {context}", param=param,
                           code="context_length_exceeded")  # fmt: skip

    async def whole(self) -> dict[str, Any]:
        await together([partial(self._collect, prompt) for prompt in self.prompts], most=self.served.limits.running)
        choices = [
            self._choice(number * self.n + sample, prompt, sample)
            for number, prompt in enumerate(self.prompts)
            for sample in range(self.n)
        ]
        return {**self._head(), "choices": choices, "usage": self._usage(), **self._explained(choices[0]["text"])}

    def _explained(self, answer: str) -> dict[str, Any]:
        """The address of the page of the first prompt's first answer, if it is wanted."""
        asked = self.prompts[0].asked
        return {} if asked is None else asked.explained(answer)

    async def _collect(self, prompt: Prompt) -> None:
        if prompt.scored is not None:
            async for found in results(self.served, prompt.scored):
                prompt.scores = found
        if prompt.asked is not None:
            async for event in results(self.served, prompt.asked.ticket):
                prompt.events.setdefault(event.sample, []).append(event)

    async def chunks(self) -> AsyncIterator[bytes]:
        for number, prompt in enumerate(self.prompts):
            assert prompt.asked is not None
            async for event in results(self.served, prompt.asked.ticket):
                prompt.events.setdefault(event.sample, []).append(event)
                samples = [event.sample] if prompt.asked.separate else range(self.n)
                if event.text or event.finished_by is not None:
                    reason = None if event.finished_by is None else finish_reason(event)
                    for sample in samples:
                        choice = {"index": number * self.n + sample, "text": event.text, "finish_reason": reason,
                                  "logprobs": self._logprobs([], [event], 0)}  # fmt: skip
                        yield sse({**self._head(), "choices": [choice]})
        explained = self._explained("".join(event.text for event in self.prompts[0].events.get(0, [])))
        if explained:
            yield sse({**self._head(), "choices": [], **explained})
        if self.body.includes_usage:
            yield sse({**self._head(), "choices": [], "usage": self._usage()})
        yield DONE

    def _choice(self, index: int, prompt: Prompt, sample: int) -> dict[str, Any]:
        own = prompt.events.get(sample if prompt.asked is not None and prompt.asked.separate else 0, [])
        before = self.served.tokenizer.decode(prompt.ids) if self.body.echo else ""
        return {
            "index": index,
            "text": before + "".join(event.text for event in own),
            "logprobs": self._logprobs(prompt.ids if self.body.echo else [], own, 0, prompt.scores),
            "finish_reason": finish_reason(own[-1]) if own else "length",
        }

    def _logprobs(
        self, ids: list[int], events: list[Event], offset: int, scores: Scores | None = None
    ) -> dict[str, Any] | None:
        """OpenAI's lists over tokens; of a prompt, whose first token has no log-probability, and of an answer."""
        if self.body.logprobs is None:
            return None
        tokens, logprobs, tops = list[int](ids), list[float | None](), list[Any]()
        if ids:
            logprobs, tops = [None], [None]
            for logprob, top in scores or []:
                logprobs.append(finite(logprob))
                tops.append(self._named(top))
        for event in events:  # also the token that ends an answer: harnesses count on one for each that was generated
            if event.token is not None:
                tokens.append(event.token)
                logprobs.append(finite(event.logprob))
                tops.append(self._named(event.top))
        texts = [self._text(token) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        return {"tokens": texts, "token_logprobs": logprobs, "top_logprobs": tops, "text_offset": offsets}

    def _named(self, top: tuple[tuple[int, float], ...]) -> dict[str, float]:
        return {self._text(token): finite(value) for token, value in reversed(top)}

    def _text(self, token: int) -> str:
        data = self.served.tokenizer.bytes_of(token)
        try:
            return data.decode()
        except UnicodeDecodeError:  # a part of a character, in OpenAI's notation
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)

    def _head(self) -> dict[str, Any]:
        return {"id": self.id, "object": "text_completion", "created": self.created, "model": self.body.model}

    def _usage(self) -> dict[str, int]:
        before = sum(len(prompt.ids) for prompt in self.prompts)
        events = (event for p in self.prompts for own in p.events.values() for event in own)
        after = token_count(events)
        return {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}
