"""Constrained decoding: the answer matches a regular expression or a JSON schema.

llguidance parses the grammar and works on bytes; this module maps its bytes to the tokenizer's tokens. The constraint
holds for the decoded text. For a tokenizer that drops the first space of a text the grammar therefore requires one more
space, and a tokenizer whose tokens do not concatenate to its text is refused.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from headway.errors import ConfigError, InputError
from headway.generation.filters import History
from headway.generation.settings import GenerationSettings
from headway.limited_process import CrashError, LimitError, run_limited
from headway.preprocess.text import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

JSON_STYLE: Any = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
}  # the format of json.dumps
SANDBOX = Path(__file__).with_name("constraint_sandbox.py")
SECONDS, MEMORY = 3, 2**29  # CPU time and bytes of address space that compiling a constraint may take
LIMITS = {"max_lexer_states": 50_000, "verbose_errors": False}  # of llguidance; the others are its defaults
PROBE = 200  # tokens decoded to check that a tokenizer's tokens concatenate to its text


class Vocabulary:
    """A tokenizer in the form llguidance expects: the bytes of each token, and which tokens are special. After the
    tokenizer's own tokens come the single bytes it lacks, so that any text can be encoded, and an end token; these are
    never generated."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        from llguidance import LLTokenizer

        self._tokenizer = tokenizer
        self.size = len(tokenizer)
        own = [tokenizer.bytes_of(i) for i in range(self.size)]
        self.drops_first_space = _check(tokenizer, own)
        self._ids = {data: i for i, data in enumerate(own) if i not in tokenizer.special_ids}
        self._longest = max(map(len, self._ids), default=0)
        missing = [bytes([byte]) for byte in range(256) if bytes([byte]) not in self._ids]
        self.tokens = [*own, *missing, b"<end>"]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [*sorted(tokenizer.special_ids), self.eos_token_id]
        self._byte_ids = {data: self.size + i for i, data in enumerate(missing)} | self._ids
        self.compiled = LLTokenizer(cast(Any, self), slices=[])

    def __call__(self, text: str | bytes) -> list[int]:
        """Tokens of a text that must come next: the tokenizer's own encoding where its bytes are exactly that text (no
        space added in front); otherwise the longest matching token first."""
        target = text.encode() if isinstance(text, str) else text
        for before in ("", "\n"):
            skipped = self._tokenizer.encode(before, special=False) if before else []
            ids = self._tokenizer.encode(before + target.decode(errors="ignore"), special=False)
            if ids[: len(skipped)] == skipped and b"".join(self.tokens[i] for i in ids[len(skipped) :]) == target:
                return ids[len(skipped) :]
        return self._longest_first(target)

    def _longest_first(self, target: bytes) -> list[int]:
        out: list[int] = []
        at = 0
        while at < len(target):
            lengths = range(min(self._longest, len(target) - at), 0, -1)
            size = next((n for n in lengths if target[at : at + n] in self._ids), None)
            if size is None:
                return out
            out.append(self._ids[target[at : at + size]])
            at += size
        return out

    def byte_ids(self, data: bytes) -> list[int]:
        """One id per byte."""
        return [self._byte_ids[data[at : at + 1]] for at in range(len(data))]


class Grammar:
    """The grammar of a regular expression or a JSON schema over a tokenizer's tokens."""

    def __init__(self, settings: GenerationSettings, tokenizer: Tokenizer) -> None:
        self.vocabulary = _vocabulary(tokenizer)
        self.prefix, self.end_ids = settings.prefix, settings.end_ids
        self._name = "json_schema" if settings.regex is None else "regex"
        source = self._source(settings)
        self._try(source)
        [body] = json.loads(source)["grammars"]
        spaced = {"grammars": [{"lark_grammar": 'start: " " @body'}, body | {"name": "body"}]}
        self._plain = self._matcher(source)
        self._spaced = self._matcher(json.dumps(spaced)) if self.vocabulary.drops_first_space else self._plain

    def _source(self, settings: GenerationSettings) -> str:
        from llguidance import LLMatcher

        if settings.regex is not None:
            return LLMatcher.grammar_from_regex(settings.regex)
        assert settings.json_schema is not None
        try:
            return LLMatcher.grammar_from_json_schema(settings.json_schema, JSON_STYLE)
        except ValueError as error:
            raise self._error(str(error)) from error

    def _try(self, source: str) -> None:
        """Raises if the constraint cannot be compiled within the limits: in this process it could not be stopped."""
        try:
            reply = run_limited(SANDBOX, {"grammar": source, "limits": LIMITS}, seconds=SECONDS, memory=MEMORY)
        except LimitError:
            most = f"{SECONDS} s and {MEMORY >> 20} MB"
            raise self._error(f"compiling it takes more than {most}; make it simpler") from None
        except CrashError as error:
            raise self._error(str(error)) from None
        if "error" in reply:
            raise self._error(reply["error"])

    def _matcher(self, source: str) -> LLMatcher:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(**cast(Any, LIMITS))
        matcher = LLMatcher(self.vocabulary.compiled, source, log_level=0, limits=limits)
        if matcher.is_error():
            raise self._error(matcher.get_error())
        return matcher

    def _error(self, reason: str) -> ConfigError:
        return ConfigError(f"{self._name} cannot be used: {_shorten(reason)}")

    def new_state(self, *, begins_text: bool) -> GrammarState:
        """State of an answer that has only the forced prefix. `begins_text`: no text precedes the answer."""
        state = GrammarState((self._spaced if begins_text else self._plain).deep_copy(), self)
        for token in self.prefix:
            if not state.push(token):
                raise InputError(f"settings.prefix does not fit the {self._name}: {state.matcher.get_error()}")
        return state

    def matches(self, text: str) -> bool:
        """Whether a whole text satisfies the constraint."""
        matcher = self._plain.deep_copy()
        return matcher.consume_tokens(self.vocabulary.byte_ids(text.encode())) and matcher.is_accepting()


class GrammarState:
    """Position of one answer in the grammar."""

    def __init__(self, matcher: LLMatcher, grammar: Grammar) -> None:
        self.matcher, self.grammar = matcher, grammar

    @property
    def complete(self) -> bool:
        """Whether the answer matches and no token may follow."""
        return self.matcher.is_accepting() and self.matcher.is_stopped()

    def allowed(self, vocab: int) -> Tensor:
        """(vocab), True = may come next. End ids are allowed where the answer matches as it is."""
        bits = np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8)
        if self.matcher.is_error():
            raise InputError(f"the constraint cannot be followed further: {_shorten(self.matcher.get_error())}")
        size = min(vocab, self.grammar.vocabulary.size)
        out = torch.zeros(vocab, dtype=torch.bool)
        out[:size] = torch.from_numpy(np.unpackbits(bits, count=size, bitorder="little").astype(bool))
        out[[i for i in self.grammar.end_ids if i < vocab]] = self.matcher.is_accepting()
        return out

    def push(self, token: int) -> bool:
        return self.matcher.consume_token(token)

    def copy(self) -> GrammarState:
        return GrammarState(self.matcher.deep_copy(), self.grammar)


@dataclass(frozen=True)
class Constraint:
    """The filter that allows only tokens which continue a match of the grammar."""

    grammar: Grammar
    begins_text: bool

    def new_state(self) -> GrammarState:
        return self.grammar.new_state(begins_text=self.begins_text)

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        states = cast(list[GrammarState], history.states(self))
        allowed = torch.stack([state.allowed(scores.shape[1]) for state in states])
        return scores.masked_fill(~allowed.to(scores.device), -torch.inf)


def grammar_of(settings: GenerationSettings, tokenizer: Tokenizer) -> Grammar:
    """The grammar of the settings' constraint; the last few are kept."""
    key = GenerationSettings(
        regex=settings.regex, json_schema=settings.json_schema, prefix=settings.prefix, stop_ids=settings.end_ids
    )
    return _grammar(key, tokenizer)


@lru_cache(maxsize=16)
def _grammar(settings: GenerationSettings, tokenizer: Tokenizer) -> Grammar:
    return Grammar(settings, tokenizer)


@lru_cache(maxsize=4)
def _vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer)


def _check(tokenizer: Tokenizer, own: list[bytes]) -> bool:
    """Whether the tokenizer drops the first space of a text. Raises if its tokens do not concatenate to its text."""
    plain = [i for i in range(len(own)) if i not in tokenizer.special_ids and own[i].isascii()]
    spaced = [i for i in plain if own[i][:1] == b" " and own[i].strip()]
    shown = tokenizer.decode([*spaced[:1], *plain[:PROBE]], skip_special=False)
    expected = b"".join(own[i] for i in [*spaced[:1], *plain[:PROBE]]).decode(errors="replace")
    if shown not in (expected, expected.removeprefix(" ")):
        raise InputError("a constraint needs a tokenizer whose tokens concatenate to its text; this tokenizer's do not")
    return shown != expected


def _shorten(message: str) -> str:
    """On one line; of a long message, which repeats the constraint, what follows the last "error:"."""
    line = " ".join(message.replace("<non-verbose/>", "").split())
    return line if len(line) <= 300 else line.rpartition("error: ")[2][:300]
