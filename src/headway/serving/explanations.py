"""/explain/{id}: the page of a request that was answered with `explain`, made when it is opened."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response

from headway.serving.api_errors import ApiError
from headway.serving.exchange import all_results, client_of
from headway.serving.fields import BoundedRoute
from headway.serving.served import Served
from headway.serving.worker import CallTicket
from headway.tasks.generate import Generate

if TYPE_CHECKING:
    from headway.explain.story import Story

router = APIRouter(route_class=BoundedRoute)
MOST_TOKENS = 512  # of a prompt and its answer: a page shows every one of them


@dataclass(frozen=True)
class Question:
    """An input of a model: token ids of a decoder's prompt, or an input of its task."""

    model: str
    value: Any = None
    ids: list[int] | None = None
    answer: str | None = None


@dataclass
class FixedPrompt(Generate):
    """The prompt of one request, as it was."""

    ids: list[int] = field(default_factory=list)

    def prompt(self, text: str, *, where: str = "") -> list[int]:
        return self.ids


class Explanations:
    def __init__(self, most: int) -> None:
        self._most = most
        self._questions: OrderedDict[str, Question] = OrderedDict()

    def keep(self, question: Question) -> str:
        """The address of its page."""
        id = secrets.token_urlsafe(12)
        self._questions[id] = question
        while len(self._questions) > self._most:
            self._questions.popitem(last=False)
        return f"/explain/{id}"

    def keeper(self, question: Question) -> Callable[[str], str]:
        return lambda answer: self.keep(replace(question, answer=answer))

    def find(self, id: str) -> Question:
        if id not in self._questions:
            raise ApiError(404, f"the last {self._most} explanations are kept; this one is not among them")
        return self._questions[id]


@router.get("/explain/{id}")
async def explain_page(request: Request, id: str) -> Response:
    question = request.app.state.explanations.find(id)
    async with request.app.state.models.use(question.model) as served:
        ticket = CallTicket(lambda: page(served, question), client=client_of(request))
        (found,) = await all_results(request, served, ticket)
    policy, html = found
    return Response(html, media_type="text/html; charset=utf-8", headers={"Content-Security-Policy": policy})


def page(served: Served, question: Question) -> tuple[str, str]:
    """(content-security policy, page)"""
    from headway.explain.page import policy_of, render

    return policy_of(), render(story_of(served, question))


def story_of(served: Served, question: Question) -> Story:
    from headway.explain import explain

    bundle, value, against = served.bundle, question.value, question.answer
    if question.ids is not None and not served.model.reads_source:
        length = len(question.ids) + len(served.tokenizer.encode(against or "", special=False))
        if length > MOST_TOKENS:
            raise ApiError(400, f"the request has {length} tokens; a page shows at most {MOST_TOKENS}")
        task = FixedPrompt(served.tokenizer, context=served.model.max_context or length, ids=question.ids)
        task.generation_defaults = bundle.generation
        bundle, value = replace(bundle, task=task), served.tokenizer.decode(question.ids, skip_special=False)
    return explain(bundle, value, against=against).story
