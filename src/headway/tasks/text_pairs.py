"""What the tasks with a text encoder share: which models they accept, a model without its head, and the special tokens
around one text and around a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.data.truncation import TruncationCounter
from headway.errors import ConfigError
from headway.models.build import build
from headway.models.protocol import Model
from headway.models.rehead import config_to_fine_tune
from headway.preprocess.text import Tokenizer

Ids = Sequence[int] | np.ndarray


def require_text_encoder(model: Model, task: str) -> None:
    if not model.encodes or model.inputs != "text":
        raise ConfigError(
            f"task {task} starts from a text encoder (BERT, RoBERTa, …), not from this {model.shape} of {model.inputs}"
        )


def without_head(model: Model) -> Model:
    """A model without head that shares the tensors of `model`."""
    bare: Any = build(config_to_fine_tune(model), device="meta")
    bare.embedding, bare.stack = model.embedding, model.stack
    return bare.train(model.training)


@dataclass(frozen=True)
class PairFrame:
    """The special tokens around one text and around a pair: BERT's [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."""

    single: tuple[list[int], list[int]]  # before, after
    pair: tuple[list[int], list[int], list[int]]  # before, between, after
    split: int  # tokens of `between` that belong to the first segment
    second: int  # the segment of the second text

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> PairFrame:
        plain, wrapped = tokenizer.encode("a", special=False), tokenizer.encode("a")
        start = next(i for i in range(len(wrapped)) if wrapped[i : i + len(plain)] == plain)
        both = tokenizer.encode_pair("a", "b")
        first = [i for i, part in enumerate(both.parts) if part == 0]
        second = [i for i, part in enumerate(both.parts) if part == 1]
        between = slice(first[-1] + 1, second[0])
        segment = both.segments[second[0]]
        return cls(
            (wrapped[:start], wrapped[start + len(plain) :]),
            (both.ids[: first[0]], both.ids[between], both.ids[second[-1] + 1 :]),
            sum(one != segment for one in both.segments[between]) if segment else len(both.ids[between]),
            segment,
        )

    def join(self, first: Ids, second: Ids = ()) -> tuple[list[int], list[int]]:
        """(ids, segments)"""
        if not len(second):
            before, after = self.single
            ids = [*before, *first, *after]
            return ids, [0] * len(ids)
        before, between, after = self.pair
        zeros = len(before) + len(first) + self.split
        ids = [*before, *first, *between, *second, *after]
        return ids, [0] * zeros + [self.second] * (len(ids) - zeros)

    @property
    def cost(self) -> tuple[int, int]:
        """Special tokens added to one text, and to a pair."""
        return sum(map(len, self.single)), sum(map(len, self.pair))


def encode_pair(
    tokenizer: Tokenizer, first: str, second: str, *, limit: int, truncation: TruncationCounter, where: str
) -> tuple[list[int], list[int]]:
    """(ids, segments) of a pair by the tokenizer's own template: [CLS] A [SEP] B [SEP], <s> A </s></s> B </s>. A pair
    over the limit loses tokens at the end of its longer text first, then of both in turn."""
    both = tokenizer.encode_pair(first, second)
    if not truncation.exceeds(len(both.ids), limit, part="pair", where=where):
        return both.ids, both.segments
    lengths = both.parts.count(0), both.parts.count(1)
    budget = limit - (len(both.ids) - sum(lengths))
    if budget < 0:
        raise ConfigError(f"a limit of {limit} tokens is less than the special tokens of a pair; raise it")
    left = list(longest_first(*lengths, budget=budget))
    taken = []
    for index, part in enumerate(both.parts):
        if part is not None:
            left[part] -= 1
        if part is None or left[part] >= 0:
            taken.append(index)
    return [both.ids[i] for i in taken], [both.segments[i] for i in taken]


def longest_first(first: int, second: int, *, budget: int) -> tuple[int, int]:
    """How many of the tokens of two texts are kept, `budget` together, when the longer one is cut first."""
    short = min(first, second)
    long = max(short, budget - short)
    if short + long > budget:
        short, long = budget // 2, budget - budget // 2
    return (long, short) if first > second else (short, long)
