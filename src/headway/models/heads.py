"""From hidden states to outputs: tokens, labels for the whole or for each token, a pooled vector."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.dropout import drop
from headway.layers.feedforward import ACTIVATIONS
from headway.layers.linear import Linear, linear
from headway.models.config import (
    ClassifyHeadConfig,
    DetectHeadConfig,
    HeadConfig,
    LanguageHeadConfig,
    PoolerConfig,
    TokenHeadConfig,
    TransformConfig,
)
from headway.models.mask_decoder import MaskDecoder
from headway.models.outputs import DetectionOutput, Output

BOX_LAYERS = 3  # of the MLP that gives a box
RARE = -math.log(99)  # first logit of a class that each query has by itself: one in a hundred (Lin et al. 2017)


class Head(nn.Module, ABC):
    is_head = True  # optimisers treat what lies below as an output layer

    @abstractmethod
    def forward(self, hidden: Tensor, *, table: Tensor | None, padding_mask: Tensor | None) -> Output:
        """`table` is the token embedding's weight, for tied vocabularies; `padding_mask` is (batch, length)."""


class LanguageHead(Head):
    def __init__(self, width: int, vocab: int, config: LanguageHeadConfig):
        super().__init__()
        self.scale = config.scale
        self.dense, self.activation, self.norm = transform(width, config.transform)
        self.project = None if config.tied else Linear(width, vocab, bias=False)
        self.bias = nn.Parameter(torch.zeros(vocab)) if config.bias else None
        self.mask_decoder = MaskDecoder(width, config.mask_decoder) if config.mask_decoder else None

    def forward(
        self,
        hidden: Tensor,
        *,
        table: Tensor | None,
        padding_mask: Tensor | None,
        logit_positions: Tensor | None = None,  # (n), of the flattened (batch · length); None: all
    ) -> Output:
        x = hidden if logit_positions is None else hidden.flatten(0, 1).index_select(0, logit_positions)
        if self.dense is not None and self.activation is not None and self.norm is not None:
            x = self.norm(self.activation(self.dense(x)))
        if self.scale != 1.0:
            x = x * self.scale
        weight = table if self.project is None else self.project.table
        assert weight is not None
        return Output(hidden, logits=linear(x, weight, self.bias))  # (batch, length, vocab) or (n, vocab)


class ClassifyHead(Head):
    def __init__(self, width: int, config: ClassifyHeadConfig):
        super().__init__()
        self.pool, self.dropout, self.dense_dropout = config.pool, config.dropout, config.dense_dropout
        self.dense = Linear(width, width, bias=config.dense_bias) if config.dense else None
        self.activation = ACTIVATIONS[config.dense] if config.dense else None
        self.norm = config.norm.build(width) if config.norm else None
        self.project = Linear(width, config.labels, bias=config.bias)
        self.distilled = Linear(width, config.labels, bias=config.bias) if config.distilled else None

    def forward(self, hidden: Tensor, *, table: Tensor | None, padding_mask: Tensor | None) -> Output:
        late = self.pool == "late"
        x = hidden if late else pool(hidden, padding_mask, self.pool)  # (batch, width), or late (batch, length, width)
        if self.dense is not None and self.activation is not None:
            x = self.activation(self.dense(_drop(x, self) if self.dense_dropout else x))
        if self.norm is not None:
            x = self.norm(x)
        logits = self.project(_drop(x, self))
        if self.distilled is not None:
            logits = (logits + self.distilled(_drop(hidden[:, 1], self))) / 2
        if late:
            logits, x = pool(logits, padding_mask, "mean"), pool(x, padding_mask, "mean")
        return Output(hidden, logits=logits, pooled=x)  # (batch, labels)


class TokenHead(Head):
    def __init__(self, width: int, config: TokenHeadConfig):
        super().__init__()
        self.dropout = config.dropout
        self.dense, self.activation, self.norm = transform(width, config.transform)
        self.project = Linear(width, config.labels, bias=config.bias)

    def forward(self, hidden: Tensor, *, table: Tensor | None, padding_mask: Tensor | None) -> Output:
        x = hidden
        if self.dense is not None and self.activation is not None and self.norm is not None:
            x = self.norm(self.activation(self.dense(x)))
        return Output(hidden, logits=self.project(_drop(x, self)))  # (batch, length, labels)


class Pooler(Head):
    def __init__(self, width: int, vocab: int, config: PoolerConfig):
        super().__init__()
        self.dense = Linear(width, width)
        self.activation = ACTIVATIONS[config.activation]
        self.next_sentence = Linear(width, 2) if config.next_sentence else None
        self.language = LanguageHead(width, vocab, config.language) if config.language else None

    def forward(
        self,
        hidden: Tensor,
        *,
        table: Tensor | None,
        padding_mask: Tensor | None,
        logit_positions: Tensor | None = None,
    ) -> Output:
        pooled = self.activation(self.dense(pool(hidden, padding_mask, "first")))
        output = Output(hidden, pooled=pooled)
        if self.next_sentence is not None:
            output.logits = output.next_sentence = self.next_sentence(pooled)
        if self.language is not None:
            output.logits = self.language(
                hidden, table=table, padding_mask=padding_mask, logit_positions=logit_positions
            ).logits
        return output


class MLP(nn.Module):
    """Linear layers with a ReLU between them."""

    def __init__(self, width: int, outputs: int, *, layers: int):
        super().__init__()
        sizes = [width] * layers + [outputs]
        self.layers = nn.ModuleList(Linear(into, out) for into, out in pairwise(sizes))

    @property
    def last(self) -> Linear:
        layer = self.layers[-1]
        assert isinstance(layer, Linear)
        return layer

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.last(x)


class DetectHead(Head):
    def __init__(self, width: int, config: DetectHeadConfig):
        super().__init__()
        self.config = config
        self.classes = MLP(width, config.labels + config.no_object, layers=config.class_layers)
        self.boxes = MLP(width, 4, layers=BOX_LAYERS)

    def forward(self, hidden: Tensor, *, table: Tensor | None, padding_mask: Tensor | None) -> DetectionOutput:
        queries = hidden if self.config.tokens is None else hidden[:, -self.config.tokens :]
        return DetectionOutput(hidden, logits=self.classes(queries), boxes=self.boxes(queries).sigmoid())


def transform(width: int, config: TransformConfig | None) -> tuple[Linear | None, Any, nn.Module | None]:
    """dense, activation and norm; three times None without a config."""
    if config is None:
        return None, None, None
    return Linear(width, width, bias=config.bias), ACTIVATIONS[config.activation], config.norm.build(width)


def apply_head(
    head: Head | None,
    hidden: Tensor,  # (batch, length, width)
    table: Tensor | None,
    *,
    padding_mask: Tensor | None,
    logit_positions: Tensor | None = None,
) -> Output:
    if head is None:
        return Output(hidden)
    extra = {} if logit_positions is None else {"logit_positions": logit_positions}
    return head(hidden, table=table, padding_mask=padding_mask, **extra)


def build_head(width: int, vocab: int, config: HeadConfig | None) -> Head | None:
    match config:
        case None:
            return None
        case LanguageHeadConfig():
            return LanguageHead(width, vocab, config)
        case ClassifyHeadConfig():
            return ClassifyHead(width, config)
        case TokenHeadConfig():
            return TokenHead(width, config)
        case PoolerConfig():
            return Pooler(width, vocab, config)
        case DetectHeadConfig():
            return DetectHead(width, config)


def pool(hidden: Tensor, padding_mask: Tensor | None, how: str) -> Tensor:
    """(batch, length, width) → (batch, width): the first or last real token, or the mean of the real ones."""
    if padding_mask is None:
        return {"first": lambda: hidden[:, 0], "last": lambda: hidden[:, -1], "mean": lambda: hidden.mean(1)}[how]()
    if how == "mean":
        weight = padding_mask.bool()[:, :, None].to(hidden.dtype)
        return (hidden * weight).sum(1) / weight.sum(1).clamp(min=1)
    return hidden[torch.arange(len(hidden), device=hidden.device), end_column(padding_mask, how)]


def end_column(padding_mask: Tensor, how: str) -> Tensor:
    """(batch, length) → (batch): where the first or last real token is."""
    keep = padding_mask.bool()
    order = torch.arange(keep.shape[1], device=keep.device)
    return (keep * order).argmax(1) if how == "last" else keep.int().argmax(1)


def _drop(x: Tensor, head: ClassifyHead | TokenHead) -> Tensor:
    return drop(x, head.dropout) if head.training and head.dropout else x
