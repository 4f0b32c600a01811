"""The scheduler around a generation session: continuous batching, chunked prefill, cancelling between steps.

A fault in a forward pass that several requests share does not tell whose fault it is. Each of them is then generated
again alone, from its beginning (an answer does not depend on its neighbours, so it is the same), and only the one that
fails alone fails.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from typing import Any

import torch

from headway.generation import Event, GenerationSettings, Session, generate
from headway.generation.prefill import CHUNK, Prefixes
from headway.generation.request import Request
from headway.generation.sample import most_probable
from headway.preprocess.text import Tokenizer
from headway.serving.limits import ServerLimits
from headway.serving.metrics import ModelMetrics
from headway.serving.turns import Turns
from headway.serving.worker import Ticket, Worker, log

PROBE = GenerationSettings(max_new_tokens=1)
GATHER = 0.01  # seconds after answers that ended together, in which their clients may ask again
SCORED = 128  # tokens of a prompt whose logits are computed at once


class GenerationTicket(Ticket):
    """Results: the events of one request; all at the end, unless they are streamed."""

    def __init__(self, request: Request, *, client: str = "", stream: bool = True) -> None:
        super().__init__(client=client, rows=max(request.settings.beams, request.settings.n))
        self.request, self.stream = request, stream
        self.held: list[Event] = []  # that wait for the end
        self.sent: dict[int, int] = {}  # events of each answer that were put
        self.replayed: dict[int, int] = {}  # of those, how many came again after a fault
        self.alone = False  # whether it is generated again, alone
        self.last = self.arrived  # when the newest token came

    def abandon(self) -> None:
        self.request.abandoned = True


class ScoreTicket(Ticket):
    """Result: for each token but the first, (log-probability, the most probable tokens)."""

    def __init__(self, ids: Sequence[int], *, top: int, client: str = "") -> None:
        super().__init__(client=client)
        self.ids, self.top = list(ids), top


class GenerationWorker(Worker):
    # prompt tokens of a step: while no answer waits for its next token, and while one does
    chunks = CHUNK // 2, CHUNK // 4

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Tokenizer,
        *,
        prefixes: Prefixes | None,
        turns: Turns,
        limits: ServerLimits,
        metrics: ModelMetrics,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.session = Session(model, tokenizer=tokenizer, prefixes=prefixes)
        self._tickets: dict[int, GenerationTicket] = {}  # in the session, by id
        self._alone: deque[GenerationTicket] = deque()  # to be generated again, one at a time
        self._scores: deque[Scoring] = deque()
        self._next_id = 0
        self._ended, self._ended_at = 0, 0.0  # answers that ended in the last step, which left none
        super().__init__(name, turns=turns, limits=limits, metrics=metrics)

    def has_work(self) -> bool:
        return bool(self._tickets or self._alone or self._scores)

    def gather(self) -> None:
        """Prompts that are read together take less time, and their answers fewer steps."""
        end = self._ended_at + GATHER
        while 0 < len(self._waiting) < self._ended and self.session.idle and (left := end - time.monotonic()) > 0:
            self._condition.wait(left)

    def admits(self) -> bool:
        return not self._alone

    def start(self, ticket: Ticket) -> None:
        if isinstance(ticket, ScoreTicket):
            self._scores.append(Scoring(self.model, ticket))
            return
        assert isinstance(ticket, GenerationTicket)
        ticket.request.id, self._next_id = self._next_id, self._next_id + 1
        ticket.request.unfinished = 0
        self._tickets[ticket.request.id] = ticket
        try:
            self.session.add_request(ticket.request)
        except Exception:
            del self._tickets[ticket.request.id]
            raise

    def drop(self, ticket: Ticket) -> None:
        if isinstance(ticket, GenerationTicket):
            if ticket in self._alone:
                self._alone.remove(ticket)
            elif self._tickets.pop(ticket.request.id, None) is not None:
                self.session.cancel(ticket.request.id)
        self._scores = deque(each for each in self._scores if each.ticket is not ticket)

    def work(self) -> None:
        if self._alone and self.session.idle:
            ticket = self._alone.popleft()
            self._start(ticket)
        if self._scores:
            self._score(self._scores.popleft())
        if not self.session.idle:
            self.session.prefill_tokens = self.chunks[self.session.decoding]
            before = len(self._tickets)
            self.metrics.batch.observe(before)
            self._send(self.session.step())
            self._ended, self._ended_at = before if self.session.idle else 0, time.monotonic()

    # --- answers

    def _send(self, events: Sequence[Event]) -> None:
        failed = {event.id: event.error for event in events if event.error is not None}
        found: dict[int, list[Event]] = {}
        for event in events:
            if event.error is None:
                found.setdefault(event.id, []).append(event)
        now = time.monotonic()
        for id, own in found.items():
            self._pass_on(self._tickets[id], own, now)
        if found:
            self.failing = None
        if failed:
            self._failed(failed)

    def _pass_on(self, ticket: GenerationTicket, events: Sequence[Event], now: float) -> None:
        fresh = [event for event in events if not ticket.alone or self._is_new(ticket, event)]
        for event in fresh:
            ticket.sent[event.sample] = ticket.sent.get(event.sample, 0) + 1
        if any(event.token is not None for event in fresh):
            first = ticket.last == ticket.arrived
            (self.metrics.first if first else self.metrics.between).observe(now - ticket.last)
            ticket.last = now
            self.metrics.generated.inc(len(fresh))
        ticket.held += fresh
        if ticket.held and (ticket.stream or ticket.request.unfinished == 0):  # each put wakes the event loop
            ticket.put(*ticket.held)
            ticket.held = []
        if ticket.request.unfinished == 0:
            del self._tickets[ticket.request.id]
            self.finish(ticket, "ok")

    def _is_new(self, ticket: GenerationTicket, event: Event) -> bool:
        """Whether an event of an answer that is generated again was not sent before."""
        count = ticket.replayed[event.sample] = ticket.replayed.get(event.sample, 0) + 1
        return count > ticket.sent.get(event.sample, 0)

    def _failed(self, errors: dict[int, Exception]) -> None:
        tickets = [self._tickets.pop(id) for id in errors]
        if len(tickets) > 1 and not any(ticket.alone for ticket in tickets):
            log.error("%s: a forward pass of %d requests failed; each is run again alone", self.name, len(tickets),
                      exc_info=next(iter(errors.values())))  # fmt: skip
            for ticket in tickets:
                ticket.alone = True
                self._alone.append(ticket)
            return
        for ticket, error in zip(tickets, errors.values(), strict=True):
            self.fail(ticket, error)
        self._probe()

    def _probe(self) -> None:
        """After a fault: whether the model still generates a token, which is what /health says."""
        source = [[0]] if self.model.reads_source else None
        try:
            generate(self.model, [[self.model.start_id or 0 if source else 0]], PROBE, sources=source)
            self.failing = None
        except Exception as error:
            self.failing = f"{type(error).__name__}: {error}"

    # --- prompts

    def _score(self, scoring: Scoring) -> None:
        try:
            if scoring.advance():
                scoring.ticket.put(scoring.found)
                self.finish(scoring.ticket, "ok")
            else:
                self._scores.append(scoring)
        except Exception as error:
            self.fail(scoring.ticket, error)


class Scoring:
    """The log-probabilities of a prompt's tokens, a chunk at a time."""

    def __init__(self, model: Any, ticket: ScoreTicket) -> None:
        self.model, self.ticket, self.found = model, ticket, list[tuple[float, tuple[tuple[int, float], ...]]]()
        self._cache: Any = None
        self._chunk = len(ticket.ids) if model.rotary_depends_on_length else SCORED

    @torch.no_grad()
    def advance(self) -> bool:
        """Whether it is done."""
        ids, at = self.ticket.ids, len(self.found)
        if at + 1 >= len(ids):
            return True
        if self._cache is None:
            self._cache = self.model.new_cache(1, capacity=len(ids))
        device = next(self.model.parameters()).device
        end = min(at + self._chunk, len(ids) - 1)
        logits = self.model.step(torch.tensor([ids[at:end]], device=device), self._cache, every=True)[0].float()
        total = logits.logsumexp(-1)  # (token,)
        chosen = logits.gather(1, torch.tensor(ids[at + 1 : end + 1], device=device)[:, None])[:, 0] - total
        tops: Any = most_probable(logits, total, self.ticket.top) if self.ticket.top else [()] * len(chosen)
        self.found += zip(chosen.tolist(), tops, strict=True)
        return end + 1 >= len(ids)
