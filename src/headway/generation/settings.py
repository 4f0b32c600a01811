"""How to write: one frozen set of choices, each checked by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from headway.errors import ConfigError, InputError

EarlyStopping = bool | Literal["never"]


@dataclass(frozen=True)
class GenerationSettings:
    """`beams` above 1 searches; `temperature` above 0 samples; neither is greedy. The filters from `top_k` to
    `typical_p` shape what is sampled from; at temperature 0 nothing is left for them to choose.

    `early_stopping` (beams): True ends when there are as many finished sequences as beams; False when the best running
    one, scored at its present length, is no better than the worst of those; "never" scores it at the most hopeful
    length instead, so that no better sequence is missed for having been cut off.

    `overflow` is for prompt and answer that do not fit the model's context: "error", or "window", which goes on with
    the first few tokens and the last ones (see headway.generation.attention_sinks).
    """

    max_new_tokens: int = 128
    min_new_tokens: int = 0  # eos_ids and stop_ids are forbidden before
    max_length: int | None = None  # most tokens of prompt and answer together; None: only max_new_tokens limits
    min_length: int = 0  # least tokens of prompt and answer together

    beams: int = 1
    groups: int = 1  # diverse beam search: each group of beams avoids what the groups before it have just written
    diversity_penalty: float = 0.0  # off the score of a token for each time an earlier group has just taken it
    length_penalty: float = 1.0  # score = Σ log p / length**length_penalty
    coverage_penalty: float = 0.0  # off a finished sequence's score for source tokens it has looked at too little
    early_stopping: EarlyStopping = False
    n: int = 1  # answers a request: the n best (beams) or n samples

    temperature: float = 0.0
    top_k: int = 0  # 0: off
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    seed: int | tuple[int, ...] | None = None  # request i uses seed + i, or its own of several; None: a new one a call

    repetition_penalty: float = 1.0  # on tokens of prompt and answer; 1: off
    frequency_penalty: float = 0.0  # off the score of a token for each time the answer has it
    presence_penalty: float = 0.0  # off the score of a token that the answer has
    no_repeat_ngram: int = 0  # no n-gram of this size twice in prompt and answer; 0: off

    eos_ids: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()  # end the answer as eos_ids do
    stop: tuple[str, ...] = ()  # texts that end the answer, and are not part of it
    prefix: tuple[int, ...] = ()  # ids every answer must begin with; they cost no score and count as no new token

    forced_bos_id: int | None = None  # the first new token, with log-probability 0 (mBART's target language)
    forced_eos_ids: tuple[int, ...] = ()  # the only tokens allowed as the last of max_new_tokens, log-probability 0
    suppress_ids: tuple[int, ...] = ()  # never generated
    begin_suppress_ids: tuple[
        int, ...
    ] = ()  # not generated as the first token (the first free one after forced_bos_id)
    bad_words: tuple[tuple[int, ...], ...] = ()  # sequences of ids that are never completed
    renormalize: bool = False  # beams: log-softmax again after the filters, so that a filtered row sums to 1

    regex: str | None = None  # the whole answer must match it (the syntax of Rust's regex crate)
    json_schema: str | None = None  # the answer is JSON, and valid for this schema (a text, or the schema itself)

    logprobs: bool = False
    speculate: bool = True  # one row: guess at what repeats itself, for speed (see headway.generation.prompt_lookup)
    overflow: Literal["error", "window"] = "error"

    def __post_init__(self) -> None:
        for name in ("eos_ids", "stop_ids", "prefix", "forced_eos_ids", "suppress_ids", "begin_suppress_ids"):
            object.__setattr__(self, name, _ids(name, getattr(self, name)))
        object.__setattr__(self, "bad_words", _id_sequences("bad_words", self.bad_words))
        if self.forced_bos_id is not None:
            _whole("forced_bos_id", self.forced_bos_id, low=0, high=10**9)
        if self.max_length is not None:
            _whole("max_length", self.max_length, low=1, high=10**7)
        object.__setattr__(self, "stop", _texts(self.stop))
        object.__setattr__(self, "json_schema", _schema(self.json_schema))
        for name, (low, high) in WHOLE.items():
            _whole(name, getattr(self, name), low=low, high=high)
        for name, (says, holds) in REAL.items():
            _real(name, getattr(self, name), says=says, holds=holds)
        if isinstance(self.seed, list | tuple):
            object.__setattr__(self, "seed", tuple(self.seed))
        for seed in self.seed if isinstance(self.seed, tuple) else () if self.seed is None else (self.seed,):
            _whole("seed", seed, low=0, high=2**63)
        if self.regex is not None and not isinstance(self.regex, str):
            raise ConfigError(f"regex is {self.regex!r}: it must be a text")
        for name in ("logprobs", "speculate", "renormalize"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: it must be true or false")
        if not isinstance(self.early_stopping, bool) and self.early_stopping != "never":
            raise ConfigError(f"early_stopping is {self.early_stopping!r}: it must be true, false or 'never'")
        if self.overflow not in ("error", "window"):
            raise ConfigError(f"overflow is {self.overflow!r}: it must be 'error' or 'window'")
        self._check_together()

    def _check_together(self) -> None:
        if self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(f"min_new_tokens ({self.min_new_tokens}) is above max_new_tokens ({self.max_new_tokens})")
        if self.beams > 1 and self.temperature > 0:
            raise ConfigError(f"beams ({self.beams}) and temperature ({self.temperature}): search or sample, not both")
        if self.beams % self.groups:
            raise ConfigError(f"groups ({self.groups}) must divide beams ({self.beams})")
        if self.diversity_penalty and self.groups == 1:
            raise ConfigError("diversity_penalty needs groups above 1")
        if self.coverage_penalty and self.beams == 1:
            raise ConfigError("coverage_penalty needs beams above 1: it weighs finished sequences against each other")
        if self.coverage_penalty and self.overflow == "window":
            raise ConfigError("coverage_penalty and overflow 'window': what was read long ago is forgotten; drop one")
        if self.regex is not None and self.json_schema is not None:
            raise ConfigError("regex and json_schema: an answer follows one of them; drop the other")
        if self.temperature == 0 and self.n > self.beams:
            raise ConfigError(
                f"n is {self.n}, but there are {self.beams} beams: use more, or sample (temperature above 0)"
            )

    def for_prompt(self, length: int) -> GenerationSettings:
        """The settings for a prompt of `length` tokens: max_length and min_length become limits on new tokens."""
        if self.max_length is None and not self.min_length:
            return self
        most = self.max_new_tokens
        if self.max_length is not None:
            if length >= self.max_length:
                raise InputError(
                    f"the prompt has {length} tokens, and max_length (prompt and answer) is {self.max_length}: "
                    "shorten the prompt, or set max_new_tokens"
                )
            most = min(most, self.max_length - length)
        least = min(most, max(self.min_new_tokens, self.min_length - length))
        return replace(self, max_new_tokens=most, min_new_tokens=least, max_length=None, min_length=0)

    @property
    def constrained(self) -> bool:
        return self.regex is not None or self.json_schema is not None

    @property
    def end_ids(self) -> tuple[int, ...]:
        """Every id that ends an answer, once."""
        return tuple(dict.fromkeys((*self.eos_ids, *self.stop_ids)))


WHOLE = {  # name → least, most
    "max_new_tokens": (1, 10**7),
    "min_new_tokens": (0, 10**7),
    "min_length": (0, 10**7),
    "beams": (1, 1000),
    "groups": (1, 1000),
    "n": (1, 1000),
    "top_k": (0, 10**9),
    "no_repeat_ngram": (0, 10**6),
}
REAL: dict[str, tuple[str, Callable[[float], bool]]] = {
    "diversity_penalty": ("0 or above", lambda x: x >= 0),
    "length_penalty": ("a finite number", lambda _: True),
    "coverage_penalty": ("0 (off) or above", lambda x: x >= 0),
    "temperature": ("0 (greedy) or above", lambda x: x >= 0),
    "top_p": ("above 0 and at most 1 (off)", lambda x: 0 < x <= 1),
    "min_p": ("from 0 (off) to 1", lambda x: 0 <= x <= 1),
    "typical_p": ("above 0 and at most 1 (off)", lambda x: 0 < x <= 1),
    "repetition_penalty": ("above 0 (1: off)", lambda x: x > 0),
    "frequency_penalty": ("a finite number (0: off)", lambda _: True),
    "presence_penalty": ("a finite number (0: off)", lambda _: True),
}


def _whole(name: str, value: Any, *, low: int, high: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ConfigError(f"{name} is {value!r}: it must be a whole number from {low} to {high}")


def _real(name: str, value: Any, *, says: str, holds: Callable[[float], bool]) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not holds(value):
        raise ConfigError(f"{name} is {value!r}: it must be {says}")


def _ids(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{name} is {value!r}: it must be a list of token ids")
    for item in value:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise ConfigError(f"{name} contains {item!r}: a token id is a whole number from 0")
    return tuple(value)


def _id_sequences(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, list | tuple) and item for item in value):
        raise ConfigError(f"{name} is {value!r}: it must be a list of lists of token ids, none of them empty")
    return tuple(_ids(name, item) for item in value)


def _texts(value: Any) -> tuple[str, ...]:
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text for text in texts):
        raise ConfigError(f"stop is {value!r}: it must be a list of texts, none of them empty")
    return tuple(texts)


def _schema(value: Any) -> str | None:
    """The schema as text, so that settings stay comparable."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError as error:
            raise ConfigError(f"json_schema is not JSON: {error}") from error
    if value is not None and not isinstance(value, dict | bool):
        raise ConfigError(f"json_schema is {value!r}: it must be a JSON object")
    return None if value is None else json.dumps(value)
