"""What the tasks with a text encoder share: which models they accept, a model without its head, and the special tokens
around one text and around a pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from headway.errors import ConfigError
from headway.models.build import build
from headway.models.protocol import Model
from headway.preprocess.text import Tokenizer

Ids = Sequence[int] | np.ndarray


def require_text_encoder(model: Model, task: str) -> None:
    if model.shape != "encoder" or model.inputs != "text":
        raise ConfigError(
            f"task {task} starts from a text encoder (BERT, RoBERTa, …), not from this {model.shape} of {model.inputs}"
        )


def without_head(model: Model) -> Model:
    """A model without head that shares the tensors of `model`."""
    bare = build(replace(model.config, head=None), device="meta")
    bare.embedding, bare.stack = model.embedding, model.stack
    return bare.train(model.training)


@dataclass(frozen=True)
class Frame:
    """The special tokens around one text and around a pair: BERT's [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."""

    single: tuple[list[int], list[int]]  # before, after
    pair: tuple[list[int], list[int], list[int]]  # before, between, after
    split: int  # tokens of `between` that belong to the first segment
    second: int  # the segment of the second text

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Frame:
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
