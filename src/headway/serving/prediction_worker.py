"""Batches of a classic task: requests that wait together, with equal options, are predicted together. A request with
more inputs than a batch holds has several batches, in turns with those of other clients.

Inputs are sorted by length inside `predict`, so that a batch has little padding. If a batch of several requests fails,
each is predicted alone, and only the faulty one fails.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headway.serving.api_errors import as_api_error
from headway.serving.fair_queue import FairQueue
from headway.serving.limits import ServerLimits
from headway.serving.metrics import ModelMetrics
from headway.serving.turns import Turns
from headway.serving.worker import Ticket, Worker, characters

Predict = Callable[[Sequence[Any], dict[str, Any]], list[Any]]  # (inputs, options) → a prediction for each


class StoppedError(Exception):
    """Nobody waits for the batch any more."""


class PredictionTicket(Ticket):
    """Result: the predictions of its inputs."""

    def __init__(self, inputs: Sequence[Any], options: dict[str, Any], *, client: str = "") -> None:
        super().__init__(client=client)
        self.inputs, self.options, self.found = list(inputs), options, list[Any]()

    def part(self, count: int, size: int) -> list[Any]:
        """The next inputs: at least one, and at most `count` with `size` characters."""
        left, end = self.inputs[len(self.found) :], 0
        while end < min(count, len(left)) and ((size := size - characters(left[end])) >= 0 or not end):
            end += 1
        return left[:end]


class PredictionWorker(Worker):
    def __init__(
        self, name: str, model: Any, predict: Predict, *, turns: Turns, limits: ServerLimits, metrics: ModelMetrics
    ) -> None:
        self._predict = predict
        self._ready: FairQueue[PredictionTicket] = FairQueue()
        self._batch: list[PredictionTicket] = []
        self._failed_pass: Exception | None = None  # the last that a forward pass raised
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
            try:
                return call(*arguments, **options)
            except Exception as error:
                self._failed_pass = error
                raise

        return called

    def has_work(self) -> bool:
        return bool(self._ready)

    def free_rows(self) -> int:
        return len(self._waiting)  # those that are ready have turns as well

    def start(self, ticket: Ticket) -> None:
        assert isinstance(ticket, PredictionTicket)
        self._ready.add(ticket.client, ticket)

    def drop(self, ticket: Ticket) -> None:
        self._ready.remove(ticket)  # type: ignore[arg-type]

    def work(self) -> None:
        batch = self._take()
        self.metrics.batch.observe(sum(map(len, batch.values())))
        try:
            self._run_batch(batch)
        except StoppedError:
            pass  # their cancellation follows
        except Exception as error:
            if len(batch) == 1:
                self._fault(next(iter(batch)), error)
                return
            for ticket, inputs in batch.items():
                try:
                    self._run_batch({ticket: inputs})
                except StoppedError:
                    pass
                except Exception as own:
                    self._fault(ticket, own)

    def _take(self) -> dict[PredictionTicket, list[Any]]:
        """The next inputs of the first ticket, and those of others with equal options, up to the size of a batch."""
        first, batch = self._ready.take(), dict[PredictionTicket, list[Any]]()
        count, size = self.limits.batch, self.limits.batch_characters
        for ticket in [first, *self._ready]:
            inputs = ticket.part(count, size) if ticket.options == first.options else []
            length = characters(inputs)
            if ticket is first or (inputs and length <= size):
                self._ready.remove(ticket)
                batch[ticket] = inputs
                count, size = count - len(inputs), size - length
        return batch

    def _run_batch(self, batch: dict[PredictionTicket, list[Any]]) -> None:
        self._batch = list(batch)
        try:
            found = self._predict([each for inputs in batch.values() for each in inputs], dict(self._batch[0].options))
        finally:
            self._batch = []
        self.failing = None
        at = 0
        for ticket, inputs in batch.items():
            ticket.found += found[at : at + len(inputs)]
            at += len(inputs)
            if len(ticket.found) < len(ticket.inputs):
                self._ready.add(ticket.client, ticket)
            else:
                ticket.put(ticket.found)
                self.finish(ticket, "ok")

    def _fault(self, ticket: PredictionTicket, error: Exception) -> None:
        """The health of the model is that of its forward passes: an input on which something else fails says nothing of
        it."""
        if error is self._failed_pass and as_api_error(error).status_code >= 500:
            self.failing = f"{type(error).__name__}: {error}"
        self.fail(ticket, error)
