"""Constraints: an answer that must match a regular expression or a JSON schema, whatever the model
would rather write. The grammar is llguidance's business, which works on bytes; here its bytes meet our tokens.

The promise is about the text as it is shown. A tokenizer that drops the space an answer begins with is therefore made
to write one, and one whose tokens do not add up to its text is refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from headway.errors import ConfigError, HeadwayError, InputError
from headway.generation.settings import GenerationSettings
from headway.preprocess.text import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLMatcher

JSON_STYLE: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}  # as json.dumps writes
PROBE = 200  # tokens, to see whether a tokenizer's tokens add up to its text


class Vocabulary:
    """A tokenizer as llguidance wants it: bytes of each token, the special ones apart. Behind the tokenizer's own come
    the single bytes it lacks, so that any text can be spelled, and an end; no model ever writes these."""

    is_tokenizer_wrapper = True
    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer) -> None:
        from llguidance import LLTokenizer

        self._tokenizer = tokenizer
        self.size = len(tokenizer)
        own = [tokenizer.bytes_of(i) for i in range(self.size)]
        self.drops_first_space = _check(tokenizer, own)
        self._ids = {spelled: i for i, spelled in enumerate(own) if i not in tokenizer.special_ids}
        self._longest = max(map(len, self._ids), default=0)
        missing = [bytes([byte]) for byte in range(256) if bytes([byte]) not in self._ids]
        self.tokens = [*own, *missing, b"<end>"]
        self.eos_token_id = len(self.tokens) - 1
        self.special_token_ids = [*sorted(tokenizer.special_ids), self.eos_token_id]
        self._byte_ids = {spelled: self.size + i for i, spelled in enumerate(missing)} | self._ids
        self.compiled = LLTokenizer(cast(Any, self), slices=[])

    def __call__(self, text: str | bytes) -> list[int]:
        """The tokens of a text that must come next: the tokenizer's own choice, where that spells the text as it stands
        and not with a space before it; else the longest first."""
        wanted = text.encode() if isinstance(text, str) else text
        for before in ("", "\n"):
            given = self._tokenizer.encode(before, special=False) if before else []
            ids = self._tokenizer.encode(before + wanted.decode(errors="ignore"), special=False)
            if ids[: len(given)] == given and b"".join(self.tokens[i] for i in ids[len(given) :]) == wanted:
                return ids[len(given) :]
        return self._longest_first(wanted)

    def _longest_first(self, wanted: bytes) -> list[int]:
        out: list[int] = []
        at = 0
        while at < len(wanted):
            lengths = range(min(self._longest, len(wanted) - at), 0, -1)
            size = next((n for n in lengths if wanted[at : at + n] in self._ids), None)
            if size is None:
                return out
            out.append(self._ids[wanted[at : at + size]])
            at += size
        return out

    def spell(self, data: bytes) -> list[int]:
        return [self._byte_ids[data[at : at + 1]] for at in range(len(data))]


class Grammar:
    """What every answer of a call must match. `fresh` below: the answer begins a text, and does not go on with one."""

    def __init__(self, settings: GenerationSettings, tokenizer: Tokenizer) -> None:
        from llguidance import LLMatcher

        self.vocabulary = _vocabulary(tokenizer)
        self.settings = settings
        if settings.regex is not None:
            self._name, source = "regex", LLMatcher.grammar_from_regex(settings.regex)
        else:
            assert settings.json_schema is not None
            self._name, source = "json_schema", LLMatcher.grammar_from_json_schema(settings.json_schema, JSON_STYLE)
        [body] = json.loads(source)["grammars"]
        spaced = {"grammars": [{"lark_grammar": 'start: " " @body'}, body | {"name": "body"}]}
        self._plain = self._matcher(source)
        self._spaced = self._matcher(json.dumps(spaced)) if self.vocabulary.drops_first_space else self._plain

    def _matcher(self, source: str) -> LLMatcher:
        from llguidance import LLMatcher

        matcher = LLMatcher(self.vocabulary.compiled, source, log_level=0)
        if matcher.is_error():
            raise ConfigError(f"{self._name} cannot be used: {_first_lines(matcher.get_error())}")
        return matcher

    def guide(self, *, fresh: bool) -> Guide:
        guide = Guide((self._spaced if fresh else self._plain).deep_copy(), self)
        for token in self.settings.prefix:
            if not guide.take(token):
                raise InputError(f"settings.prefix does not fit the {self._name}: {guide.matcher.get_error()}")
        return guide

    def fits(self, text: str) -> bool:
        """Whether a whole text is what was asked for."""
        matcher = self._plain.deep_copy()
        return matcher.consume_tokens(self.vocabulary.spell(text.encode())) and matcher.is_accepting()


class Guide:
    """Where one answer stands in the grammar."""

    def __init__(self, matcher: LLMatcher, grammar: Grammar) -> None:
        self.matcher, self.grammar = matcher, grammar

    @property
    def complete(self) -> bool:
        """Nothing more can follow."""
        return self.matcher.is_accepting() and self.matcher.is_stopped()

    def allowed(self, vocab: int) -> Tensor:
        """(vocab), True = may come next. What ends an answer may come when the answer is whole."""
        bits = np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8)
        if self.matcher.is_error():
            raise HeadwayError(f"the constraint cannot be followed further: {_first_lines(self.matcher.get_error())}")
        size = min(vocab, self.grammar.vocabulary.size)
        out = torch.zeros(vocab, dtype=torch.bool)
        out[:size] = torch.from_numpy(np.unpackbits(bits, count=size, bitorder="little").astype(bool))
        out[[i for i in self.grammar.settings.end_ids if i < vocab]] = self.matcher.is_accepting()
        return out

    def take(self, token: int) -> bool:
        return self.matcher.consume_token(token)

    def copy(self) -> Guide:
        return Guide(self.matcher.deep_copy(), self.grammar)


def restrict(scores: Tensor, guides: Sequence[Guide | None]) -> Tensor:
    """(row, vocab): what a row's guide does not allow scores -inf. A row without one is left alone."""
    if not any(guides):
        return scores
    vocab = scores.shape[1]
    anything = torch.ones(vocab, dtype=torch.bool)
    allowed = torch.stack([anything if guide is None else guide.allowed(vocab) for guide in guides])
    return scores.masked_fill(~allowed.to(scores.device), -torch.inf)


@lru_cache(maxsize=4)
def _vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary(tokenizer)


def _check(tokenizer: Tokenizer, own: list[bytes]) -> bool:
    """Whether the tokenizer drops the space that its text begins with."""
    plain = [i for i in range(len(own)) if i not in tokenizer.special_ids and own[i].isascii()]
    spaced = [i for i in plain if own[i][:1] == b" " and own[i].strip()]
    shown = tokenizer.decode([*spaced[:1], *plain[:PROBE]], skip_special=False)
    spelled = b"".join(own[i] for i in [*spaced[:1], *plain[:PROBE]]).decode(errors="replace")
    if shown not in (spelled, spelled.removeprefix(" ")):
        raise InputError("a constraint needs a tokenizer whose tokens add up to its text, and this one's do not")
    return shown != spelled


def _first_lines(message: str) -> str:
    return " ".join(message.split())[:300]
