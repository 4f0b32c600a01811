"""Direct logit attribution: one logit as a sum over everything added to the residual stream – the embedding, each
attention head, each feed-forward – and the biases (Elhage et al. 2021; for post-norm models Kobayashi et al. 2021).

The residual stream is a sum, and the map from it to the logit is linear once each norm is frozen at the scale it had in
this pass. So the contributions add up to the logit exactly, up to rounding. A pre-norm model has one such norm, the
final one; a post-norm model (BERT, 2017) one after every residual, and each is frozen. The activation of a head (BERT's
masked-language and sentence heads) is frozen at its gain f(x)/x in the same way. Only the direct path counts, not what
later layers compute from a contribution.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.inspect.importance import logit
from headway.inspect.parts import eval_mode, output_part
from headway.inspect.record import record
from headway.layers.attention import Attention
from headway.layers.block import Residual
from headway.layers.norms import BatchNorm, RMSNorm
from headway.models.ensemble import NETWORK, members_of
from headway.models.heads import pool
from headway.models.protocol import Model, Part


@dataclass(frozen=True)
class Contribution:
    name: str  # the module, e.g. `stack.blocks.0.attention`, or a bias
    head: int | None  # of an attention layer
    value: float


@dataclass(frozen=True)
class Attribution:
    logit: float  # the model's own
    parts: list[Contribution]  # from the input to the output

    @property
    def total(self) -> float:
        return sum(part.value for part in self.parts)


@torch.no_grad()
def attribute(
    model: Model,
    inputs: Mapping[str, Any],  # keyword arguments of the model's forward
    token: int,  # id in the vocabulary, or index of a label
    *,
    position: int = -1,  # if the head gives logits for every token
    row: int = 0,  # of the batch
) -> Attribution:
    """The contributions to the logit of `token`."""
    part = output_part(model)
    prefix = part.prefix
    if part.model.head is None:
        raise InputError("the model has no head, so there is no logit to attribute; load it with one")
    if not is_sum(part):
        raise InputError(
            "direct logit attribution needs one residual stream: this model has a convolution beside its blocks, or "
            "runs its last block again with positions"
        )
    taps = [f"{prefix}stack.blocks.*.{tap}" for tap in ("z", "branch", "stream")]
    with eval_mode(model), record(model, [f"{prefix}embedding.sum", *taps]) as recorded:
        output = model(**inputs)
    value = logit(token, position=position, row=row)(output).item()
    mask = inputs.get("decoder_padding_mask" if model.reads_source else "padding_mask")
    hidden = output.hidden[row]  # (length, width)
    head = _linear_head(part, len(hidden), token, position=position, mask=None if mask is None else mask[row : row + 1])
    path = _BackwardPath(
        prefix, {name: values[-1][row].index_select(-2, head.positions) for name, values in recorded.items()}
    )
    path.through_head(head, hidden[head.positions])
    path.through_stack(part.model)
    if not members_of(model):
        return Attribution(value, path.parts[::-1])
    weights: Any = model.weights
    parts = [replace(each, value=weights[NETWORK] * each.value) for each in path.parts[::-1]]
    added = {name: output.members[name][row, token].item() for name in members_of(model)}
    return Attribution(
        value, [*parts, *(Contribution(name, None, weights[name] * each) for name, each in added.items())]
    )


def is_sum(part: Part) -> bool:
    """Whether all that leads to the logits is added to one stream by the blocks, each of which runs once."""
    return part.model.stack.convolution is None and getattr(part.model, "mask_decoder", None) is None


class _BackwardPath:
    """Goes back from the logit to the embedding, at the positions that the head uses. `gradient` is that of the logit
    with respect to the present activation, norms frozen; each step back adds the contribution of its own output and
    propagates the gradient to its input."""

    def __init__(self, prefix: str, values: Mapping[str, Tensor]):
        self.prefix, self.values = prefix, values
        self.parts: list[Contribution] = []  # last first
        self.gradient = torch.empty(0)

    def add(self, name: str, output: Tensor, *, head: int | None = None) -> None:
        self.parts.append(Contribution(self.prefix + name, head, (self.gradient * output).sum().item()))

    def add_bias(self, name: str, bias: Tensor | None) -> None:
        if bias is not None and bias.any():
            self.add(f"{name}.bias", bias)

    def through_head(self, head: _LinearHead, hidden: Tensor) -> None:  # hidden: (position, width)
        self.gradient = torch.ones_like(head.pooling[0])
        self.add_bias(head.name, head.bias)
        self.gradient = head.row.double()
        if head.dense is not None and head.activation is not None:
            weight, bias = _affine(head.dense, hidden)
            x = (head.pooling @ hidden.double()) @ weight + bias
            y = head.activation(x)
            if head.norm is not None:
                self.through_norm(f"{head.name}.norm", head.norm, y)
            self.gradient = self.gradient * torch.where(x == 0, 0.0, y / x)  # every activation here maps 0 to 0
            self.add_bias(f"{head.name}.dense", bias)
            self.gradient = weight @ self.gradient
        self.gradient = head.pooling[:, None] * self.gradient  # (position, width)

    def through_stack(self, model: Any) -> None:
        stack = model.stack
        kinds = ("attention", "cross", "feedforward") if stack.config.block.cross else ("attention", "feedforward")
        names = [f"stack.blocks.{i}.{kind}" for i in range(len(stack.blocks)) for kind in kinds]
        streams = [self.values[f"{self.prefix}embedding.sum"]]
        streams += [self.values[f"{self.prefix}{name}_residual.stream"] for name in names]
        if stack.final_norm is not None:
            self.through_norm("stack.final_norm", stack.final_norm, streams[-1])
        for name, before in zip(reversed(names), reversed(streams[:-1]), strict=True):
            branch = self.values[f"{self.prefix}{name}_residual.branch"]
            residual, module = model.get_submodule(f"{name}_residual"), model.get_submodule(name)
            assert isinstance(residual, Residual)
            if residual.post:
                self.through_norm(f"{name}_residual.norm", residual.norm, before.double() + branch)
            if isinstance(module, Attention):
                self.add_heads(name, module, residual.branch_norm)
            else:
                self.add(name, branch)
        self.add("embedding", streams[0])

    def add_heads(self, name: str, attention: Attention, branch_norm: nn.Module | None) -> None:
        z = self.values[f"{self.prefix}{name}.z"]  # (head, position, head_size)
        separate = torch.eye(len(z), dtype=z.dtype, device=z.device)[:, None, :, None] * z.transpose(0, 1)
        bias = attention.output(torch.zeros_like(z[0, 0]).repeat(len(z)))
        outputs = attention.output(separate.flatten(2)).double() - bias  # (head, position, width)
        stream = self.gradient
        if branch_norm is not None:
            self.through_norm(f"{name}_residual.branch_norm", branch_norm, outputs.sum(0) + bias)
        self.add_bias(f"{name}.output", bias)
        for head in reversed(range(len(z))):
            self.add(name, outputs[head], head=head)
        self.gradient = stream

    def through_norm(self, name: str, norm: nn.Module, x: Tensor) -> None:
        """A norm with its scale frozen at that of `x` is linear."""
        x = x.double()
        if isinstance(norm, BatchNorm):
            scale = torch.rsqrt(norm.running_var.double() + norm.eps) * norm.weight
            self.add_bias(name, norm.bias - norm.running_mean * scale)
            self.gradient = self.gradient * scale
            return
        assert isinstance(norm, nn.LayerNorm | RMSNorm)
        self.add_bias(name, getattr(norm, "bias", None))
        weight = norm.scale if isinstance(norm, RMSNorm) else norm.weight
        if weight is not None:
            self.gradient = self.gradient * weight
        if isinstance(norm, nn.LayerNorm):  # the mean is removed from every contribution
            self.gradient = self.gradient - self.gradient.mean(-1, keepdim=True)
            x = x - x.mean(-1, keepdim=True)
        assert norm.eps is not None
        self.gradient = self.gradient * torch.rsqrt(x.square().mean(-1, keepdim=True) + norm.eps)


@dataclass(frozen=True)
class _LinearHead:
    """The part of a head that computes one logit: pooling of the hidden states, dense layer, activation and norm where
    it has them, and one row of the projection."""

    name: str
    positions: Tensor  # of the hidden states with a pooling weight above zero
    pooling: Tensor  # (position), the weight of each
    row: Tensor  # (width), or (position, width) where each position has a projection of its own
    bias: Tensor | None
    dense: nn.Module | None = None
    activation: Callable[[Tensor], Tensor] | None = None
    norm: nn.Module | None = None


def _linear_head(part: Part, length: int, token: int, *, position: int, mask: Tensor | None) -> _LinearHead:
    model = part.model
    head, kind, name = model.head, model.head_kind, "head"
    if kind == "pooler" and head.language is not None:
        head, kind, name = head.language, "language", "head.language"
    device = next(model.parameters()).device
    each = torch.eye(length, dtype=torch.float64, device=device)
    index = torch.tensor([token], device=device)

    def build(pooling: Tensor, table: Tensor, bias: Tensor | None, *more: Any) -> _LinearHead:
        positions = pooling.nonzero()[:, 0]
        row = torch.index_select(table, 0, index)[0]
        return _LinearHead(name, positions, pooling[positions], row, None if bias is None else bias[token], *more)

    if kind == "language":
        table = model.token_table if head.project is None else head.project.table
        assert table is not None
        made = build(each[position], table, head.bias, head.dense, head.activation, head.norm)
        return replace(made, row=made.row * head.scale)
    if kind == "token":
        project = head.project
        return build(each[position], project.weight, project.bias, head.dense, head.activation, head.norm)
    if kind == "classify" and head.distilled is not None:  # the first token's logits and the second's, averaged
        both = (head.project, head.distilled)
        made = build((each[0] + each[1]) / 2, head.project.weight, None)
        bias = None if head.project.bias is None else sum(layer.bias[token] for layer in both) / 2
        return replace(made, row=torch.stack([layer.weight[token] for layer in both]), bias=bias)
    if kind == "classify" and head.pool != "late":
        pooling, project = pool(each[None], mask, head.pool)[0], head.project
        return build(pooling, project.weight, project.bias, head.dense, head.activation, head.norm)
    if kind == "pooler" and head.next_sentence is not None:
        pooling, project = pool(each[None], mask, "first")[0], head.next_sentence
        return build(pooling, project.weight, project.bias, head.dense, head.activation)
    raise InputError(f"{type(head).__name__} gives no logits of one vector to attribute")


def _affine(dense: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    """(weight (in, out), bias (out)) of a dense layer, found by calling it, so LoRA and int8 layers work too."""
    width = like.shape[-1]
    bias = dense(like.new_zeros(width)).double()
    return dense(torch.eye(width, dtype=like.dtype, device=like.device)).double() - bias, bias
