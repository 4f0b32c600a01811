"""Fields of requests that generate text, and what they mean as generation settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from headway.generation import History
from headway.serving.fields import (
    SEED,
    Body,
    Ids,
    Ignored,
    Name,
    Penalty,
    Seed,
    Share,
    Temperature,
    Text,
    Texts,
    Tokens,
    Unsupported,
)
from headway.serving.limits import ServerLimits

Stop = Annotated[list[Annotated[str, Field(min_length=1, max_length=512)]], Field(max_length=16)]
TopLogprobs = Annotated[int, Field(ge=0, le=20)]
Choices = Annotated[int, Field(ge=1, le=ServerLimits.choices)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class StreamOptions(Body):
    include_usage: bool | None = None
    include_obfuscation: Ignored = None


class JsonSchema(Body):
    name: Name | None = None
    description: Text | None = None
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Body):
    type: Literal["text", "json_object", "json_schema", "regex"]
    json_schema: JsonSchema | None = None
    value: dict[str, Any] | str | None = None  # of Hugging Face's clients: a schema or a regular expression
    name: Ignored = None  # OpenAI's responses have the fields of json_schema here
    schema_: dict[str, Any] | None = Field(default=None, alias="schema")
    strict: Ignored = None
    description: Ignored = None

    def constraint(self) -> dict[str, Any]:
        """As an option of GenerationSettings."""
        if self.type == "text":
            return {}
        if self.type == "regex":
            return {"regex": self.value if isinstance(self.value, str) else ""}
        given: Any = self.json_schema.schema_ if self.json_schema is not None else self.schema_
        given = self.value if given is None else given
        return {"json_schema": given if isinstance(given, dict) else {"type": "object"}}


class Sampling(Body):
    """What chat completions, completions and responses have in common."""

    model: Name
    temperature: Temperature | None = None
    top_p: Share | None = None
    stream: bool | None = None
    user: Ignored = None
    metadata: Ignored = None
    service_tier: Ignored = None
    store: Ignored = None
    safety_identifier: Ignored = None
    prompt_cache_key: Ignored = None
    explain: bool | None = None  # the answer carries the address of its explanation
    # beyond OpenAI's, by the names of other servers
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Field(gt=0, le=10)] | None = None
    min_tokens: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    speculate: bool | None = None  # false: no prompt lookup while it is the only answer

    def sampling_options(self) -> dict[str, Any]:
        """Options of GenerationSettings that were given."""
        names = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p",
                 "repetition_penalty": "repetition_penalty", "min_tokens": "min_new_tokens",
                 "speculate": "speculate"}  # fmt: skip
        values = {option: getattr(self, name) for name, option in names.items()}
        return {name: value for name, value in values.items() if value is not None}


class Choosing(Sampling):
    """What chat completions and completions have in common."""

    n: Choices | None = None
    stop: Annotated[Stop | None, BeforeValidator(_listed)] = None
    seed: Seed | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = Field(default=None, max_length=1024)
    stream_options: StreamOptions | None = None

    def options(self) -> dict[str, Any]:
        out = self.sampling_options()
        if self.seed is not None:
            out["seed"] = self.seed & SEED
        for name in ("presence_penalty", "frequency_penalty"):
            if (value := getattr(self, name)) is not None:
                out[name] = value
        if self.stop:
            out["stop"] = tuple(self.stop)
        return out

    @property
    def includes_usage(self) -> bool:
        return self.stream_options is not None and bool(self.stream_options.include_usage)


class ContentPart(Body):
    """A part of a message's content. Pictures are not read from here; in particular no URL is fetched."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: Text | None = None
    refusal: Ignored = None
    annotations: Ignored = None
    logprobs: Ignored = None
    cache_control: Ignored = None


class Message(Body):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Text | Annotated[list[ContentPart], Field(max_length=256)] | None = None
    name: Ignored = None
    refusal: Ignored = None
    tool_calls: Unsupported = None
    function_call: Unsupported = None
    tool_call_id: Ignored = None
    audio: Unsupported = None
    annotations: Ignored = None
    reasoning_content: Ignored = None
    id: Ignored = None  # responses
    type: Literal["message"] | None = None
    status: Ignored = None

    def plain(self) -> dict[str, str]:
        role = "system" if self.role == "developer" else self.role
        text = self.content if isinstance(self.content, str) else "".join(p.text or "" for p in self.content or ())
        return {"role": role, "content": text}


class ChatBody(Choosing):
    messages: Annotated[list[Message], Field(min_length=1, max_length=1024)]
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None
    response_format: ResponseFormat | None = None
    tools: Unsupported = None
    tool_choice: Ignored = None
    parallel_tool_calls: Ignored = None
    functions: Unsupported = None
    function_call: Unsupported = None
    audio: Unsupported = None
    modalities: list[Literal["text"]] | None = None
    prediction: Unsupported = None
    web_search_options: Unsupported = None
    reasoning_effort: Ignored = None
    verbosity: Ignored = None
    chat_template_kwargs: Unsupported = None

    @property
    def length(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens


class CompletionBody(Choosing):
    prompt: Text | Texts | Ids | Annotated[list[Ids], Field(min_length=1, max_length=256)]
    max_tokens: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    logprobs: TopLogprobs | None = None
    echo: bool | None = None
    best_of: Choices | None = None
    suffix: Unsupported = None
    response_format: ResponseFormat | None = None

    def prompts(self) -> list[str | list[int]]:
        given: Any = self.prompt
        if isinstance(given, str) or isinstance(given[0], int):
            return [given]
        return list(given)


@dataclass(frozen=True)
class LogitBias:
    """A filter that adds to the scores of some tokens."""

    values: tuple[tuple[int, float], ...]

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        out = scores.clone()
        ids = [token for token, _ in self.values]
        out[:, ids] += torch.tensor([value for _, value in self.values], dtype=scores.dtype, device=scores.device)
        return out


def bias_filters(given: dict[str, float] | None, *, vocab: int) -> Sequence[LogitBias]:
    if not given:
        return ()
    for token in given:
        if not token.isascii() or not token.isdigit() or len(token) > 9 or int(token) >= vocab:
            raise ValueError(f"{token!r:.40} is not a token id below {vocab}")
    return (LogitBias(tuple(sorted((int(token), value) for token, value in given.items()))),)
