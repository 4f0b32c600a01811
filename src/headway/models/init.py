"""First values of the weights.

`classic`: Xavier-uniform matrices and embeddings of variance 1/width (2017). `modern`: matrices of variance 1/inputs,
the last matrix of every branch at zero, so that a fresh model is the identity on its residual stream, and small
embeddings, which a norm follows on the way in and which make a tied output begin near even odds.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from headway.layers.attention import Attention
from headway.layers.embeddings import PatchEmbedding
from headway.layers.feedforward import FeedForward
from headway.layers.norms import Modulation
from headway.models.heads import Head
from headway.models.recipes import Recipe


@torch.no_grad()
def initialise(model: nn.Module, recipe: Recipe, *, seed: int) -> None:
    """The same seed gives the same weights, whatever was drawn before."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            _linear(module, recipe, generator)
        elif isinstance(module, nn.Embedding):
            spread = 0.02 if recipe == "modern" else 1 / math.sqrt(module.embedding_dim)
            module.weight.normal_(0, spread, generator=generator)
        elif isinstance(module, PatchEmbedding):
            for parameter in (module.first, module.positions):
                parameter.normal_(0, 0.02, generator=generator)
    for module in model.modules():
        if isinstance(module, Modulation):
            module.project.weight.zero_()
    if recipe == "modern":
        for module in model.modules():
            for last in _last_of_branch(module):
                last.weight.zero_()


def _linear(layer: nn.Linear, recipe: Recipe, generator: torch.Generator) -> None:
    if recipe == "classic":
        bound = math.sqrt(6 / (layer.in_features + layer.out_features))
        layer.weight.uniform_(-bound, bound, generator=generator)
    else:
        layer.weight.normal_(0, 1 / math.sqrt(layer.in_features), generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()


def _last_of_branch(module: nn.Module) -> list[nn.Linear]:
    if isinstance(module, Attention):
        return [module.output]
    if isinstance(module, FeedForward):
        return [module.down]
    project = getattr(module, "project", None)
    return [project] if isinstance(module, Head) and isinstance(project, nn.Linear) else []
