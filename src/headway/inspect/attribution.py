"""Direct logit attribution: one logit as a sum over what wrote into the residual stream – the embedding,
each attention head, each feed-forward – and the biases on the way (Elhage et al. 2021; for post-norm models Kobayashi
et al. 2021).

The stream is a sum, and the way from it to the logit is linear once each norm on it is held at the scale it had in this
pass. So the parts add up to the logit exactly, up to rounding. A pre-norm model has one norm on the way, the final one;
a post-norm model (BERT, 2017) one after every residual, and each is held. A head's own activation (BERT's masked-word
and sentence heads) is held at its gain f(x)/x in the same way. What is direct is what a part writes itself; what later
layers make of it counts for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.importance import logit
from headway.inspect.parts import evaluating, speaker, token_table
from headway.inspect.record import record
from headway.layers.attention import Attention
from headway.layers.block import Residual
from headway.layers.norms import BatchNorm
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder
from headway.models.heads import ClassifyHead, LanguageHead, Pooler, TokenHead, pool


@dataclass(frozen=True)
class Contribution:
    name: str  # the part, e.g. `stack.blocks.0.attention`, or the bias
    head: int | None  # of an attention
    value: float


@dataclass(frozen=True)
class Attribution:
    logit: float  # as the model gave it
    parts: list[Contribution]  # from the input to the output

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)


@torch.no_grad()
def attribute(
    model: nn.Module,
    inputs: Mapping[str, Any],  # what the model is called with, by name
    token: int,  # of the vocabulary, or a label
    *,
    position: int = -1,  # where the head gives logits for every token
    row: int = 0,  # of the batch
) -> Attribution:
    """Who wrote the logit of `token`."""
    prefix, part = speaker(model)
    if part.head is None:
        raise InputError("the model has no head, so there is no logit to attribute; load it with one")
    written = [f"{prefix}stack.blocks.*.{tap}" for tap in ("z", "branch", "stream")]
    with evaluating(model), record(model, [f"{prefix}embedding.sum", *written]) as seen:
        output = model(**inputs)
    given = logit(token, position=position, row=row)(output).item()
    mask = inputs.get("decoder_padding_mask" if prefix else "padding_mask")
    hidden = output.hidden[row]  # (length, width)
    head = _reading(part, len(hidden), token, position=position, mask=None if mask is None else mask[row : row + 1])
    way = _Way(prefix, {name: values[-1][row].index_select(-2, head.read) for name, values in seen.items()})
    way.through_head(head, hidden[head.read])
    way.through_stack(part)
    return Attribution(given, way.parts[::-1])


class _Way:
    """The way back from the logit, at the positions that the head reads. `pull` is what each number at the present
    place is worth to the logit; a step back notes what the step itself adds, and carries the pull through it."""

    def __init__(self, prefix: str, values: Mapping[str, Tensor]):
        self.prefix, self.values = prefix, values
        self.parts: list[Contribution] = []  # the last first
        self.pull = torch.empty(0)

    def note(self, name: str, written: Tensor, *, head: int | None = None) -> None:
        self.parts.append(Contribution(self.prefix + name, head, (self.pull * written).sum().item()))

    def note_bias(self, name: str, bias: Tensor | None) -> None:
        if bias is not None and bias.any():
            self.note(f"{name}.bias", bias)

    def through_head(self, head: _Reading, hidden: Tensor) -> None:  # hidden: (read, width)
        self.pull = torch.ones_like(head.pooling[0])
        self.note_bias(head.name, head.bias)
        self.pull = head.row.double()  # (width)
        if head.dense is not None and head.activation is not None:
            weight, bias = _affine(head.dense, hidden)
            x = (head.pooling @ hidden.double()) @ weight + bias
            y = head.activation(x)
            if head.norm is not None:
                self.through_norm(f"{head.name}.norm", head.norm, y)
            self.pull = self.pull * torch.where(x == 0, 0.0, y / x)  # every activation here is zero at zero
            self.note_bias(f"{head.name}.dense", bias)
            self.pull = weight @ self.pull
        self.pull = head.pooling[:, None] * self.pull  # (read, width)

    def through_stack(self, part: Encoder | Decoder) -> None:
        kinds = ("attention", "cross", "feedforward") if part.stack.config.block.cross else ("attention", "feedforward")
        names = [f"stack.blocks.{i}.{kind}" for i in range(len(part.stack.blocks)) for kind in kinds]
        streams = [self.values[f"{self.prefix}embedding.sum"]]
        streams += [self.values[f"{self.prefix}{name}_residual.stream"] for name in names]
        if part.stack.final_norm is not None:
            self.through_norm("stack.final_norm", part.stack.final_norm, streams[-1])
        for name, before in zip(reversed(names), reversed(streams[:-1]), strict=True):
            branch = self.values[f"{self.prefix}{name}_residual.branch"]
            residual, module = part.get_submodule(f"{name}_residual"), part.get_submodule(name)
            assert isinstance(residual, Residual)
            if residual.post:
                self.through_norm(f"{name}_residual.norm", residual.norm, before.double() + branch)
            if isinstance(module, Attention):
                self.note_heads(name, module)
            else:
                self.note(name, branch)
        self.note("embedding", streams[0])

    def note_heads(self, name: str, attention: Attention) -> None:
        z = self.values[f"{self.prefix}{name}.z"]  # (head, read, head_size)
        alone = torch.eye(len(z), dtype=z.dtype, device=z.device)[:, None, :, None] * z.transpose(0, 1)
        bias = attention.output(torch.zeros_like(z[0, 0]).repeat(len(z)))
        written = attention.output(alone.flatten(2)).double() - bias  # (head, read, width)
        self.note_bias(f"{name}.output", bias)
        for head in reversed(range(len(z))):
            self.note(name, written[head], head=head)

    def through_norm(self, name: str, norm: nn.Module, x: Tensor) -> None:
        """Held at the scale it has for `x`, a norm is linear."""
        x = x.double()
        if isinstance(norm, BatchNorm):
            scale = torch.rsqrt(norm.running_var.double() + norm.eps) * norm.weight
            self.note_bias(name, norm.bias - norm.running_mean * scale)
            self.pull = self.pull * scale
            return
        assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
        self.note_bias(name, getattr(norm, "bias", None))
        if norm.weight is not None:
            self.pull = self.pull * norm.weight
        if isinstance(norm, nn.LayerNorm):  # takes the mean out, of what is written as of x
            self.pull = self.pull - self.pull.mean(-1, keepdim=True)
            x = x - x.mean(-1, keepdim=True)
        assert norm.eps is not None
        self.pull = self.pull * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps)


@dataclass(frozen=True)
class _Reading:
    """A head as far as one of its logits goes: the states pooled into one, dense and activation and norm if there are
    any, and a row of the projection."""

    name: str
    read: Tensor  # the positions it reads
    pooling: Tensor  # (read), the share of each
    row: Tensor  # (width)
    bias: Tensor | None
    dense: nn.Module | None = None
    activation: Callable[[Tensor], Tensor] | None = None
    norm: nn.Module | None = None


def _reading(part: Encoder | Decoder, length: int, token: int, *, position: int, mask: Tensor | None) -> _Reading:
    head, name = part.head, "head"
    if isinstance(head, Pooler) and head.language is not None:
        head, name = head.language, "head.language"
    device = next(part.parameters()).device
    each = torch.eye(length, dtype=torch.float64, device=device)
    index = torch.tensor([token], device=device)

    def reading(pooling: Tensor, table: Tensor, bias: Tensor | None, *more: Any) -> _Reading:
        read = pooling.nonzero()[:, 0]
        row = torch.index_select(table, 0, index)[0]
        return _Reading(name, read, pooling[read], row, None if bias is None else bias[token], *more)

    if isinstance(head, LanguageHead):
        table = token_table(part) if head.project is None else head.project.table
        assert table is not None
        made = reading(each[position], table, head.bias, head.dense, head.activation, head.norm)
        return replace(made, row=made.row * head.scale)
    if isinstance(head, TokenHead):
        return reading(each[position], head.project.weight, head.project.bias)
    if isinstance(head, ClassifyHead):
        pooling, project = pool(each[None], mask, head.pool)[0], head.project
        return reading(pooling, project.weight, project.bias, head.dense, head.activation)
    if isinstance(head, Pooler) and head.next_sentence is not None:
        pooling, project = pool(each[None], mask, "first")[0], head.next_sentence
        return reading(pooling, project.weight, project.bias, head.dense, head.activation)
    raise InputError(f"{type(head).__name__} gives no logit to attribute")


def _affine(dense: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    """(weight (in, out), bias (out)) of a dense layer, however it stores them: it is asked."""
    width = like.shape[-1]
    bias = dense(like.new_zeros(width)).double()
    return dense(torch.eye(width, dtype=like.dtype, device=like.device)).double() - bias, bias
