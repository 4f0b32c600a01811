"""Batches of a classic task: requests that wait together, with equal options, are predicted together.

Inputs are sorted by length inside `predict`, so that a batch has little padding. If a batch of several requests fails,
each is predicted alone, and only the faulty one fails.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headway.serving.api_errors import as_api_error
from headway.serving.limits import Limits
from headway.serving.metrics import ModelMetrics
from headway.serving.turns import Turns
from headway.serving.worker import Ticket, Worker

Predict = Callable[[Sequence[Any], dict[str, Any]], list[Any]]  # (inputs, options) → a prediction for each


class StoppedError(Exception):
    """Nobody waits for the batch any more."""


class PredictionTicket(Ticket):
    """Result: the predictions of its inputs."""

    def __init__(self, inputs: Sequence[Any], options: dict[str, Any], *, client: str = "") -> None:
        super().__init__(client=client)
        self.inputs, self.options = list(inputs), options


class PredictionWorker(Worker):
    def __init__(
        self, name: str, model: Any, predict: Predict, *, turns: Turns, limits: Limits, metrics: ModelMetrics
    ) -> None:
        self._predict = predict
        self._ready: deque[PredictionTicket] = deque()
        self._batch: list[PredictionTicket] = []
        model.forward = self._interruptible(model.forward)
        for name in ("encode", "step"):
            if hasattr(model, name):
                setattr(model, name, self._interruptible(getattr(model, name)))
        super().__init__(name, turns=turns, limits=limits, metrics=metrics)

    def _interruptible(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Between two forward passes other models have their turns, and a batch that nobody waits for ends."""

        def called(*arguments: Any, **options: Any) -> Any:
            if self._batch:
                if all(ticket.cancelled for ticket in self._batch):
                    raise StoppedError
                self.turns.pause()
            return call(*arguments, **options)

        return called

    def has_work(self) -> bool:
        return bool(self._ready)

    def start(self, ticket: Ticket) -> None:
        assert isinstance(ticket, PredictionTicket)
        self._ready.append(ticket)

    def drop(self, ticket: Ticket) -> None:
        if ticket in self._ready:
            self._ready.remove(ticket)  # type: ignore[arg-type]

    def work(self) -> None:
        batch = self._take()
        self.metrics.batch.observe(sum(len(ticket.inputs) for ticket in batch))
        try:
            self._run_batch(batch)
        except StoppedError:
            pass  # their cancellation follows
        except Exception as error:
            if len(batch) == 1:
                self._fault(batch[0], error)
                return
            for ticket in batch:
                try:
                    self._run_batch([ticket])
                except StoppedError:
                    pass
                except Exception as own:
                    self._fault(ticket, own)

    def _take(self) -> list[PredictionTicket]:
        """The first ticket, and those with equal options, up to the size of a batch."""
        first = self._ready.popleft()
        batch, count = [first], len(first.inputs)
        for ticket in list(self._ready):
            fits = count + len(ticket.inputs) <= self.limits.batch
            if fits and ticket.options == first.options:
                self._ready.remove(ticket)
                batch.append(ticket)
                count += len(ticket.inputs)
        return batch

    def _run_batch(self, batch: list[PredictionTicket]) -> None:
        self._batch = batch
        try:
            found = self._predict([each for ticket in batch for each in ticket.inputs], dict(batch[0].options))
        finally:
            self._batch = []
        self.failing = None
        at = 0
        for ticket in batch:
            ticket.put(found[at : at + len(ticket.inputs)])
            at += len(ticket.inputs)
            self.finish(ticket, "ok")

    def _fault(self, ticket: PredictionTicket, error: Exception) -> None:
        if as_api_error(error).status_code >= 500:
            self.failing = f"{type(error).__name__}: {error}"
        self.fail(ticket, error)
