"""Projected vectors of relative positions are kept between calls: in inference neither the vectors nor the weights
change, and for a short text their projection costs as much as that of its own tokens.

A kept projection is used if the vectors are equal and the weights are the same tensors, unchanged."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headway.engine.inplace import has_hooks
from headway.layers.relative import DisentangledBias
from headway.layers.transformer_xl import TransformerXLBias
from headway.models.protocol import Model

KEPT = "kept_projections"  # of a bias: by layer, (state of the weights, vectors, projected vectors)


class _KeepsProjections:
    training: bool

    def project(self, layer: nn.Module, vectors: Tensor) -> Tensor:
        plain = super().project  # type: ignore[misc]
        if torch.is_grad_enabled() or self.training or has_hooks(layer):
            return plain(layer, vectors)
        kept: dict[nn.Module, tuple[Any, Tensor, Tensor]] = self.__dict__.setdefault(KEPT, {})
        state = [(id(tensor), tensor._version) for tensor in (*layer.parameters(), *layer.buffers())]
        found = kept.get(layer)
        if found is not None and found[0] == state and torch.equal(found[1], vectors):
            return found[2]
        projected = plain(layer, vectors)
        kept[layer] = state, vectors, projected
        return projected


class FastDisentangledBias(_KeepsProjections, DisentangledBias):
    pass


class FastTransformerXLBias(_KeepsProjections, TransformerXLBias):
    pass


FAST = {DisentangledBias: FastDisentangledBias, TransformerXLBias: FastTransformerXLBias}


def swap_biases(model: Model, *, fast: bool) -> None:
    """Makes the score biases of a model keep their projections, or plain again."""
    classes = FAST if fast else {new: old for old, new in FAST.items()}
    for module in model.modules():
        if type(module) in classes:
            module.__class__ = classes[type(module)]
            module.__dict__.pop(KEPT, None)
