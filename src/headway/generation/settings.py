"""How text is generated: one frozen set of settings, each declared once with its help and its check."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

from headway.errors import ConfigError, InputError
from headway.generation.option import (
    FLAG,
    id_sequences,
    ids,
    json_schema,
    one_of,
    option,
    option_of,
    optional,
    pattern,
    real,
    seeds,
    texts,
    whole,
)

RUN, RUN_AND_CHAT, RUN_AND_EVALUATE = ("run",), ("run", "chat"), ("run", "evaluate")  # commands with the option

LENGTH = whole(0, 10**7)
SHARE = real("above 0 and at most 1 (off)", lambda x: 0 < x <= 1)
FINITE = real("a finite number (0: off)")
NOT_NEGATIVE = real("0 (off) or above", lambda x: x >= 0)


@dataclass(frozen=True)
class GenerationSettings:
    """`beams` above 1 searches; `temperature` above 0 samples; neither is greedy. The filters from `top_k` to
    `typical_p` apply to sampling only.

    `early_stopping` (beams): True ends when there are as many finished sequences as beams; False when the best running
    one, scored at its present length, is no better than the worst of those; "never" scores it at the length that is
    best for it instead, so that no better sequence is missed.

    `overflow` applies when prompt and answer do not fit the model's context: "error", or "window", which keeps the
    first few tokens and the last ones (see headway.generation.attention_sinks).
    """

    max_new_tokens: int = option(128, "Maximum number of tokens in an answer.", whole(1, 10**7), commands=RUN_AND_CHAT)
    min_new_tokens: int = option(
        0,
        "Minimum number of tokens in an answer: end-of-text tokens are suppressed until then.",
        LENGTH,
        commands=RUN_AND_CHAT,
    )
    max_length: int | None = option(
        None,
        "Maximum number of tokens in the prompt and the answer together; None: no limit.",
        optional(whole(1, 10**7)),
    )
    min_length: int = option(0, "Minimum number of tokens in the prompt and the answer together.", LENGTH)

    beams: int = option(
        1, "Beam width; more than 1 searches instead of sampling.", whole(1, 1000), commands=RUN_AND_EVALUATE
    )
    groups: int = option(
        1, "Diverse beam search: each group of beams avoids the tokens of the groups before.", whole(1, 1000),
        commands=RUN,
    )  # fmt: skip
    diversity_penalty: float = option(
        0.0, "Subtracted from a token's score for every earlier group that chose it at this step.", NOT_NEGATIVE,
        commands=RUN,
    )  # fmt: skip
    length_penalty: float = option(
        1.0, "Beam score = sum of log p / length^penalty; above 0 favours longer answers.", real("a finite number"),
        commands=RUN,
    )  # fmt: skip
    coverage_penalty: float = option(
        0.0, "Beam search: penalty for parts of the source that the answer leaves out.", NOT_NEGATIVE,
        commands=RUN,
    )  # fmt: skip
    early_stopping: bool | Literal["never"] = option(
        False,
        "When beam search stops: True once enough answers are complete, False by a heuristic, never: at the limit.",
        one_of(True, False, "never"),
    )
    n: int = option(
        1, "Number of answers for each input: the n best beams, n samples or n pictures.", whole(1, 1000), commands=RUN
    )

    temperature: float = option(
        0.0, "Sampling temperature; 0 always takes the most probable token.",
        real("0 (greedy) or above", lambda x: x >= 0), commands=RUN_AND_CHAT,
    )  # fmt: skip
    top_k: int = option(0, "Sample from the k most probable tokens; 0: off.", whole(0, 10**9), commands=RUN_AND_CHAT)
    top_p: float = option(
        1.0, "Sample from the smallest set of tokens with this total probability (nucleus sampling).", SHARE,
        commands=RUN_AND_CHAT,
    )  # fmt: skip
    min_p: float = option(
        0.0, "Sample from tokens with at least this fraction of the highest probability.",
        real("from 0 (off) to 1", lambda x: 0 <= x <= 1), commands=RUN_AND_CHAT,
    )  # fmt: skip
    typical_p: float = option(
        1.0, "Sample from the most typical tokens with this total probability.", SHARE,
        commands=RUN_AND_CHAT,
    )  # fmt: skip
    seed: int | tuple[int, ...] | None = option(
        None, "Random seed: input i of a call uses seed + i.", seeds, commands=RUN_AND_CHAT
    )

    repetition_penalty: float = option(
        1.0, "Above 1, tokens of the prompt and the answer become less probable.",
        real("above 0 (1: off)", lambda x: x > 0), commands=RUN_AND_CHAT,
    )  # fmt: skip
    frequency_penalty: float = option(
        0.0,
        "Subtracted from a token's score for every earlier occurrence in the answer.",
        FINITE,
        commands=RUN_AND_CHAT,
    )
    presence_penalty: float = option(
        0.0, "Subtracted once from the score of every token that occurs in the answer.", FINITE, commands=RUN_AND_CHAT
    )
    no_repeat_ngram: int = option(
        0,
        "No n-gram of this size occurs twice in the prompt and the answer; 0: off.",
        whole(0, 10**6),
        commands=RUN_AND_CHAT,
    )

    eos_ids: tuple[int, ...] = option((), "Token ids that end an answer.", ids)
    stop_ids: tuple[int, ...] = option((), "More token ids that end an answer.", ids)
    stop: tuple[str, ...] = option(
        (), "Text that ends an answer and is not part of it; repeatable.", texts, commands=RUN_AND_CHAT
    )
    prefix: tuple[int, ...] = option((), "Text that every answer begins with.", ids, commands=RUN)

    forced_bos_id: int | None = option(
        None,
        "Token that every answer begins with, with log-probability 0 (mBART's target language).",
        optional(whole(0, 10**9)),
    )
    forced_eos_ids: tuple[int, ...] = option(
        (), "Tokens that an answer of max_new_tokens ends with, with log-probability 0.", ids
    )
    forced_ids: tuple[tuple[int, ...], ...] = option(
        (), "Pairs of the number of a new token, from 0, and its id (Whisper's language and task).", id_sequences
    )
    suppress_ids: tuple[int, ...] = option((), "Token ids that are never generated.", ids)
    begin_suppress_ids: tuple[int, ...] = option(
        (), "Token ids that are not generated first (after the forced ones).", ids
    )
    terms: tuple[tuple[int, ...], ...] = option(
        (), "With beams: sequences of ids that an answer has, in any order, each as words of its own.", id_sequences
    )
    bad_words: tuple[tuple[int, ...], ...] = option((), "Sequences of ids that are never completed.", id_sequences)
    renormalize: bool = option(
        False, "Renormalise after the filters: scores and logprobs are of the filtered distribution.", FLAG
    )

    regex: str | None = option(
        None, "The whole answer matches this regular expression (syntax of Rust's regex crate).", optional(pattern),
        commands=RUN_AND_CHAT,
    )  # fmt: skip
    json_schema: str | None = option(
        None, "The answer is JSON, valid for the schema in this file.", json_schema, commands=RUN_AND_CHAT
    )

    logprobs: bool = option(False, "With --json: include each token's log-probability.", FLAG, commands=RUN)
    top_logprobs: int = option(
        0, "Number of most probable tokens reported at each step of a greedy or sampled answer.", whole(0, 1000)
    )
    speculate: bool = option(
        True,
        "Prompt lookup: guess the next tokens from earlier text; the same answer, faster.",
        FLAG,
        commands=RUN_AND_CHAT,
    )
    overflow: Literal["error", "window"] = option(
        "error", "When the context is full: stop, or drop old tokens (attention sinks).", one_of("error", "window"),
        commands=RUN_AND_CHAT,
    )  # fmt: skip

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, option_of(each).check(each.name, getattr(self, each.name)))
        self._check_together()

    def _check_together(self) -> None:
        if any(len(pair) != 2 for pair in self.forced_ids):
            raise ConfigError(f"forced_ids is {self.forced_ids}: it must be pairs of a number and a token id")
        if self.min_new_tokens > self.max_new_tokens:
            raise ConfigError(f"min_new_tokens ({self.min_new_tokens}) is above max_new_tokens ({self.max_new_tokens})")
        if self.beams > 1 and self.temperature > 0:
            raise ConfigError(f"beams ({self.beams}) and temperature ({self.temperature}): search or sample, not both")
        if self.beams % self.groups:
            raise ConfigError(f"groups ({self.groups}) must divide beams ({self.beams})")
        if self.diversity_penalty and self.groups == 1:
            raise ConfigError("diversity_penalty needs groups above 1")
        if self.terms and self.beams == 1:
            raise ConfigError("terms need beams above 1: where a term stands is searched for")
        if self.coverage_penalty and self.beams == 1:
            raise ConfigError("coverage_penalty needs beams above 1: it weighs finished sequences against each other")
        if self.coverage_penalty and self.overflow == "window":
            raise ConfigError(
                "coverage_penalty does not work with overflow 'window', which drops tokens: leave one out"
            )
        if self.regex is not None and self.json_schema is not None:
            raise ConfigError("regex and json_schema cannot be combined: leave one of them out")
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


def tokens_left(context: int, prompt: int) -> int:
    """How many tokens can be generated after a prompt of this length. The last one is never an input, so it needs no
    position in the context."""
    return max(0, context - prompt + 1)
