"""One model that is served: its bundle, its task, and the worker that runs it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, cast

from headway.bundle import Bundle
from headway.data.truncation import TruncationCounter
from headway.errors import InputError
from headway.generation import GenerationSettings, generate, tokens_left
from headway.generation.filters import Filter
from headway.generation.request import Request, new_request
from headway.jobs.chat import NOT_IN_CHAT, end_ids
from headway.preprocess.chat import PLAIN_STOPS, chat_ids
from headway.preprocess.text import Tokenizer
from headway.serving.api_errors import ApiError
from headway.serving.generation_worker import GenerationWorker
from headway.serving.limits import ServerLimits
from headway.serving.metrics import Metrics
from headway.serving.prediction_worker import PredictionWorker
from headway.serving.predictions import predict
from headway.serving.turns import Turns
from headway.serving.worker import Worker, characters
from headway.tasks.generation import settings_from
from headway.tasks.task import Task

UNBOUNDED = 1024  # longest answer of a model without a limit of its own, unless the request has one
CHARACTERS = 64  # of a text, for each token of a context
TRUNCATE = "truncate"  # option of a prediction: over-long inputs are cut and counted, not refused


class Served:
    def __init__(
        self,
        name: str,
        bundle: Bundle,
        *,
        turns: Turns,
        limits: ServerLimits,
        metrics: Metrics,
        prefix_cache: bool = True,
    ) -> None:
        self.name, self.bundle, self.limits, self.metrics = name, bundle, limits, metrics.of(name)
        self.task = _with_counter(bundle.find_task(), TruncationCounter("error", InputError))
        self.model = bundle.model
        self.worker: Worker
        common: dict[str, Any] = {"turns": turns, "limits": limits, "metrics": self.metrics}
        if self.generates:
            prefixes = bundle.prefixes if prefix_cache else None
            self.worker = GenerationWorker(name, self.model, self.tokenizer, prefixes=prefixes, **common)
            self._chat_ends = () if self.model.reads_source else end_ids(bundle, self.tokenizer)
        else:
            self.worker = PredictionWorker(name, self.model, self._predict, **common)

    @property
    def generates(self) -> bool:
        """Whether its answers are generated token by token in a session; a recording's transcript is not, because it
        decides on the next request by the answer to the one before."""
        return self.task.prediction_kind.generates

    @property
    def tokenizer(self) -> Tokenizer:
        return self.task.tokenizer

    @property
    def context(self) -> int | None:
        return self.model.max_context if self.generates else self.model.max_length

    # --- generation

    def require_generation(self) -> None:
        if not self.generates:
            raise ApiError(
                400, f"model {self.name!r} is for task {self.task.name}, which does not generate text", param="model"
            )

    def require_task(self, *names: str) -> None:
        if self.task.name not in names:
            raise ApiError(
                400,
                f"model {self.name!r} is for task {self.task.name}; this route is for {' and '.join(names)}",
                param="model",
            )

    def check_length(self, value: Any, *, param: str | None = None) -> None:
        """Raises for an input whose texts have more characters than any context is for: tokenising megabytes takes
        seconds, only to find too many tokens."""
        most = max(self.limits.context_characters, min(CHARACTERS * (self.context or 0), self.limits.characters))
        if (found := characters(value)) > most:
            raise ApiError(
                400, f"the text has {found:,} characters; model {self.name!r} reads at most {most:,}", param=param,
                code="context_length_exceeded",
            )  # fmt: skip

    def prompt_ids(self, text: str) -> list[int]:
        """The ids that a plain text is continued from; of a model that reads a source, the source's."""
        self.check_length(text)
        if self.model.reads_source:
            return self.task.source_ids(text, where="prompt")  # type: ignore[attr-defined]
        return self.tokenizer.encode(text, special=self.task.input_kind.special_tokens) or [self.tokenizer.bos_id or 0]

    def chat_ids(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        if self.model.reads_source:
            raise ApiError(
                400, f"model {self.name!r} reads a source and holds no conversation: use /models/{self.name}",
                param="model",
            )  # fmt: skip
        self.check_length(messages)
        return chat_ids(self.tokenizer, messages, bos=self.task.input_kind.special_tokens)

    @property
    def plain_chat(self) -> bool:
        """Whether it has no chat template of its own."""
        return self.tokenizer.chat_template is None

    def settings(self, options: Mapping[str, Any], *, ids: Sequence[int], chat: bool = False) -> GenerationSettings:
        """Options of a request over those of the model's files over the task's."""
        if self.model.reads_source:
            found = self.task.generation_defaults.resolve(
                self.task.generation_options(),  # type: ignore[attr-defined]
                options,
                max_context=self.model.max_context,
            )
            return settings_from(found, self.tokenizer)
        own: dict[str, Any] = {"temperature": 1.0, **self.bundle.generation.options}
        own = {name: value for name, value in own.items() if name not in (*NOT_IN_CHAT, "max_new_tokens")}
        eos = () if self.tokenizer.eos_id is None else (self.tokenizer.eos_id,)
        own["eos_ids"] = self._chat_ends if chat else tuple(dict.fromkeys([*own.get("eos_ids", ()), *eos]))
        if chat and self.plain_chat:
            options = {**options, "stop": (*options.get("stop", ()), *PLAIN_STOPS)}
        out = {**own, **options}
        out["max_new_tokens"] = self._length(len(ids), out.get("max_new_tokens"))
        return settings_from(out, self.tokenizer)

    def _length(self, prompt: int, given: int | None) -> int:
        """Most tokens of an answer: those that are given, else what fits the context."""
        context, most = self.model.max_context, self.limits.new_tokens
        if given is not None and given > most:
            raise ApiError(400, f"max_tokens is {given}; the server allows {most}", param="max_tokens")
        left = most if context is None else tokens_left(context, prompt)
        if left < (given or 1):
            answer = "leaves none for an answer" if given is None else f"leaves {left} for an answer of {given}"
            raise ApiError(
                400,
                f"the prompt has {prompt} tokens and the model's context is {context} tokens, which {answer}",
                param="max_tokens" if given is not None and left > 0 else None,
                code="context_length_exceeded",
            )
        return given or min(most if context is not None else UNBOUNDED, left)

    def request(self, ids: Sequence[int], settings: GenerationSettings, *, filters: Sequence[Filter] = ()) -> Request:
        """Checked, ready for the worker."""
        prompt, source = ids, None
        if self.model.reads_source:
            prompt, source = [self.task.start_id], list(ids)  # type: ignore[attr-defined]
        seed = settings.seed if isinstance(settings.seed, int) else None
        return new_request(
            0, self.model, prompt, settings, source=source, filters=filters, tokenizer=self.tokenizer, seed=seed
        )

    # --- prediction

    def _predict(self, inputs: Sequence[Any], options: dict[str, Any]) -> list[Any]:
        counter = TruncationCounter("truncate" if options.pop(TRUNCATE, False) else "error", InputError)
        found = predict(_with_counter(self.task, counter), self.model, inputs, options)
        self.metrics.cut.inc(sum(counter.cut.values()))
        return found


def warm_up(bundle: Bundle) -> None:
    """Compiles a generating model's step, so that its first request does not wait for that."""
    model, tokens = cast(Any, bundle.model), GenerationSettings(max_new_tokens=3, speculate=False)
    if bundle.find_task().prediction_kind.generates:
        source = [[0]] if model.reads_source else None
        generate(model, [[model.start_id or 0] if source else [0]], tokens, sources=source)


def _with_counter(task: Task, counter: TruncationCounter) -> Task:
    """The same task, whose over-long inputs are counted or refused by `counter`."""
    out = copy.copy(task)
    out.truncation = counter
    return out
