"""What the tasks on a text encoder share: is it one, what is it without its head, and how does its
tokenizer join texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from headway.errors import ConfigError
from headway.layers.embeddings import EmbeddingConfig
from headway.models.build import build
from headway.models.encoder import Encoder
from headway.preprocess.text import Tokenizer

Ids = Sequence[int] | np.ndarray


def text_encoder(model: nn.Module, task: str) -> Encoder:
    """The model itself, or a refusal."""
    if not isinstance(model, Encoder) or not isinstance(model.config.embedding, EmbeddingConfig):
        raise ConfigError(
            f"{task} starts from a text encoder (BERT, RoBERTa, DistilBERT, …), not {type(model).__name__}"
        )
    return model


def without_head(encoder: Encoder) -> Encoder:
    """The same tensors, bare."""
    bare = build(replace(encoder.config, head=None), device="meta")
    assert isinstance(bare, Encoder)
    bare.embedding, bare.stack = encoder.embedding, encoder.stack
    return bare.train(encoder.training)


@dataclass(frozen=True)
class Frame:
    """What a tokenizer puts around one text and around two: BERT's [CLS] A [SEP] and [CLS] A [SEP] B [SEP]."""

    single: tuple[list[int], list[int]]  # before, after
    pair: tuple[list[int], list[int], list[int]]  # before, between, after
    split: int  # how many of `between` belong to the first segment
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
        """Tokens added to one text, and to two."""
        return sum(map(len, self.single)), sum(map(len, self.pair))
