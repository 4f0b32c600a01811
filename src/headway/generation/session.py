"""A generation session: requests join and leave a running batch at any step (continuous batching: Orca, Yu et al. 2022;
chunked prefill: Sarathi, Agrawal et al. 2024)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from headway.errors import InputError
from headway.generation.batch import RunningBatch, Unit, overflowing
from headway.generation.beam import BeamSearch
from headway.generation.coverage import CrossAttention
from headway.generation.filters import Filter
from headway.generation.outputs import Event
from headway.generation.prefill import CHUNK, PrefillEntry, PrefillQueue, Prefixes
from headway.generation.request import Request, Source, new_request
from headway.generation.sample import SampledAnswer, failed
from headway.generation.settings import GenerationSettings
from headway.preprocess.text import Tokenizer


class Session:
    """Generates the answers to requests that arrive at any time.

    Each answer is token for token what it is alone: settings, filters, length and random numbers belong to the request.

        session = Session(model, tokenizer=tokenizer)
        id = session.add(tokenizer.encode("Once upon"), GenerationSettings(max_new_tokens=32))
        while not session.idle:
            for event in session.step():
                print(event.text, end="")

    Not thread-safe: one thread adds, steps and cancels.
    """

    def __init__(
        self,
        model: Any,
        *,
        tokenizer: Tokenizer | None = None,
        prefixes: Prefixes | None = None,
        prefill_tokens: int | None = CHUNK,
    ) -> None:
        """`prefixes` spares a request the prefill of the tokens that an earlier one began with. At most
        `prefill_tokens` prompt tokens are read per step, so that a long prompt does not stall the others (None: no
        limit)."""
        self.model, self.tokenizer, self.prefixes = model, tokenizer, prefixes
        device = next(model.parameters()).device
        self._batch = RunningBatch(model, device)
        self._prefill = PrefillQueue(model, budget=prefill_tokens, prefixes=prefixes, device=device)
        self._requests: dict[int, Request] = {}  # unfinished
        self._next_id = 0
        self._attention: CrossAttention | None = None  # made for the first request with a coverage penalty

    def __len__(self) -> int:
        """Number of unfinished requests."""
        return len(self._requests)

    @property
    def idle(self) -> bool:
        return not self._requests

    @property
    def decoding(self) -> bool:
        """Whether answers have begun: the next step appends a token to each."""
        return bool(self._batch)

    @property
    def prefill_tokens(self) -> int | None:
        """Most prompt tokens that a step reads; may be set between steps."""
        return self._prefill.budget

    @prefill_tokens.setter
    def prefill_tokens(self, count: int | None) -> None:
        self._prefill.budget = count

    def add(
        self,
        prompt: Sequence[int],
        settings: GenerationSettings | None = None,
        *,
        source: Source | None = None,
        filters: Sequence[Filter] = (),
    ) -> int:
        """Adds a request and returns its id; generation begins with the next step.

        `prompt`: token ids. A model that reads a source takes it in `source`, and a prompt of its start id. `filters`
        are applied after those of the settings (see headway.generation.filters).
        """
        settings = settings or GenerationSettings()
        if isinstance(settings.seed, tuple):
            raise InputError("settings.seed is a list of seeds, but a request takes one")
        return self.add_request(
            new_request(
                self._next_id,
                self.model,
                prompt,
                settings,
                source=source,
                filters=filters,
                tokenizer=self.tokenizer,
                seed=settings.seed,
            )
        )

    def add_request(self, request: Request) -> int:
        """Adds a request made by `new_request`; ids must increase."""
        settings = request.settings
        if settings.coverage_penalty and self._attention is None:
            self._attention = CrossAttention(self.model)
        units: list[Unit] = (
            [BeamSearch(request)] if settings.beams > 1 else [SampledAnswer(request, i) for i in range(settings.n)]
        )
        request.unfinished = len(units)
        self._requests[request.id] = request
        self._next_id = request.id + 1
        self._prefill.add(PrefillEntry(request, units, [request.ids]))
        return request.id

    def cancel(self, id: int) -> None:
        """Drops a request with everything it holds; it has no further events. A finished request is left as it is."""
        if not 0 <= id < self._next_id:
            raise InputError(f"the session has had no request {id}")
        request = self._requests.pop(id, None)
        if request is not None:
            self._prefill.remove(request)
            self._batch.remove(request)

    def clear(self) -> None:
        """Drops all requests."""
        self._requests.clear()
        self._prefill.clear()
        self._batch.clear()

    @torch.no_grad()
    def step(self) -> list[Event]:
        """Decodes one token for every running row, and prefills waiting prompts up to the token budget. Returns the new
        tokens and ends.

        If a request fails (its logits are NaN, one of its filters raises, the model raises), it ends with an event
        whose `finished_by` is "error"; the others continue.
        """
        try:
            return self._step()
        except BaseException:  # interrupted: what the rows hold is not known
            self.clear()
            raise

    def _step(self) -> list[Event]:
        batch, events = self._batch, list[Event]()
        attention = None
        if self._attention is not None and any(r.settings.coverage_penalty for r in self._requests.values()):
            attention = self._attention
        if batch:
            try:
                batch.decode(attention)
            except Exception as error:
                requests = [unit.request for unit in batch.units]
                batch.clear()
                events += self._fail(requests, error)
        if self._prefill:
            for job, result in list(self._prefill.run(attention)):
                if isinstance(result, Exception):
                    events += self._fail([entry.request for entry in job.entries], result)
                else:
                    batch.join(job, result)
        if batch:
            events += self._choose()
        return events

    def _choose(self) -> list[Event]:
        events = self._batch.choose()
        errors = {event.id: event.error for event in events if event.error is not None}
        leaving: set[Unit] = set()
        for row, unit in self._batch.rows():
            request = unit.request
            if unit.finished or request.id in errors:
                leaving.add(unit)
                self._finish(unit, row)
            elif overflowing(unit):
                leaving.add(unit)
                self._prefill.add(PrefillEntry(request, [unit], unit.row_ids()))
        self._batch.settle(leaving)
        if not errors:
            return events
        requests = {unit.request for unit in leaving if unit.request.id in errors}
        failures = [event for request in requests for event in self._fail([request], errors[request.id])]
        return [event for event in events if event.id not in errors] + failures

    def _finish(self, unit: Unit, row: int) -> None:
        """Counts a unit whose rows are about to leave; the last one of a request ends it."""
        request = unit.request
        request.unfinished -= 1
        if request.unfinished or not unit.finished:
            return
        del self._requests[request.id]
        if self.prefixes is not None and request.source is None and request.window is None:
            self.prefixes.store(self.model, unit.cached_ids(), self._batch.cache, row)

    def _fail(self, requests: Iterable[Request], error: Exception) -> list[Event]:
        events = []
        for request in dict.fromkeys(requests):
            if self._requests.pop(request.id, None) is not None:
                self._prefill.remove(request)
                self._batch.remove(request)
                events.append(failed(request, error))
        return events
