"""Counts and times for Prometheus, in a registry of the server's own."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
BETWEEN = (0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: Any = {"registry": self.registry}
        self.requests = Counter(
            "headway_requests_total", "Requests of a model, by how they ended.", ["model", "outcome"], **own
        )
        self.responses = Counter("headway_http_responses_total", "Responses, by status.", ["status"], **own)
        self.running = Gauge("headway_requests_running", "Requests that are worked on.", ["model"], **own)
        self.waiting = Gauge("headway_requests_waiting", "Requests in the queue.", ["model"], **own)
        self.queue = Histogram("headway_queue_seconds", "Time in the queue.", ["model"], buckets=SECONDS, **own)
        self.first = Histogram(
            "headway_time_to_first_token_seconds", "From arrival to the first token.", ["model"], buckets=SECONDS, **own
        )
        self.between = Histogram(
            "headway_time_between_tokens_seconds", "Between two tokens of an answer.", ["model"], buckets=BETWEEN, **own
        )
        self.prompt = Counter("headway_prompt_tokens_total", "Tokens of prompts and sources.", ["model"], **own)
        self.generated = Counter("headway_generated_tokens_total", "Tokens of answers.", ["model"], **own)
        self.cut = Counter(
            "headway_cut_inputs_total", "Inputs that were cut, as their request allowed.", ["model"], **own
        )
        self.batches = Histogram(
            "headway_batch_size", "Rows of a forward pass.", ["model"], buckets=(1, 2, 4, 8, 16, 32, 64), **own
        )
        self.loaded = Gauge("headway_model_loaded", "Whether a model is in memory.", ["model"], **own)

    def of(self, model: str) -> ModelMetrics:
        return ModelMetrics(self, model)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class ModelMetrics:
    """The metrics of one model."""

    def __init__(self, metrics: Metrics, model: str) -> None:
        self._requests, self._model = metrics.requests, model
        self.running, self.waiting = metrics.running.labels(model), metrics.waiting.labels(model)
        self.queue_seconds, self.first = metrics.queue.labels(model), metrics.first.labels(model)
        self.between, self.batch = metrics.between.labels(model), metrics.batches.labels(model)
        self.prompt, self.generated = metrics.prompt.labels(model), metrics.generated.labels(model)
        self.cut, self.loaded = metrics.cut.labels(model), metrics.loaded.labels(model)

    def finished(self, outcome: str) -> None:
        self._requests.labels(self._model, outcome).inc()
