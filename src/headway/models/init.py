"""First values of the weights.

`classic`: Xavier-uniform matrices and embeddings of variance 1/width (2017). `modern` and `published`: matrices of
variance 1/inputs, the last matrix of every branch at zero (or its gate, where a condition modulates it), so that a
fresh model is the identity on its residual stream, and small embeddings, which a norm follows on the way in and which
make a tied output begin near even odds.
"""

from __future__ import annotations

import math

import torch
from torch import nn

from headway.layers.attention import Attention
from headway.layers.block import Block
from headway.layers.characters import CharacterEmbedding
from headway.layers.convnet import Convolution, ResidualUnit
from headway.layers.embeddings import PatchEmbedding
from headway.layers.feedforward import FeedForward
from headway.layers.norms import Modulation
from headway.layers.projected_lstm import ProjectedLSTM
from headway.layers.recurrent import Recurrent, RecurrentCell, reset_cells
from headway.layers.token_convolution import TokenConvolution
from headway.models.decoder import Decoder
from headway.models.heads import RARE, DetectHead, Head, LanguageHead
from headway.models.recipes import Recipe


@torch.no_grad()
def initialise(model: nn.Module, recipe: Recipe, *, seed: int) -> None:
    """The same seed gives the same weights, whatever was drawn before."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            _linear(module, recipe, generator)
        elif isinstance(module, nn.Embedding):
            spread = 0.02 if recipe != "classic" else 1 / math.sqrt(module.embedding_dim)
            module.weight.normal_(0, spread, generator=generator)
        elif isinstance(module, nn.Conv2d):  # a ReLU follows (He et al. 2015)
            module.weight.normal_(0, math.sqrt(2 / module.weight[0].numel()), generator=generator)
        elif isinstance(module, Convolution):  # a ReLU follows (He et al. 2015)
            module.weight.normal_(0, math.sqrt(2 / module.weight.shape[1]), generator=generator)
        elif isinstance(module, Recurrent | RecurrentCell):
            reset_cells(module, module.cell, module.hidden, generator=generator)
        elif isinstance(module, ProjectedLSTM):
            module.reset(generator)
        elif isinstance(module, PatchEmbedding):
            for parameter in module.parameters(recurse=False):
                parameter.normal_(0, 0.02, generator=generator)
    gated = set[nn.Module]()  # a zero gate follows: with zero weights too, neither would have a gradient
    for module in model.modules():
        if isinstance(module, Modulation):
            module.project.weight.zero_()
        if isinstance(module, Block) and module.modulation is not None:
            gated.update(module.modules())
    for module in model.modules():
        if isinstance(module, DetectHead) and not module.config.no_object:
            module.classes.last.bias.fill_(RARE)
        if isinstance(module, CharacterEmbedding):  # no norm follows
            module.characters.weight.normal_(0, 1, generator=generator)
        if isinstance(module, TokenConvolution):
            module.reset(generator)
    if recipe != "classic":
        for module in model.modules():
            if isinstance(module, Attention) and module.config.scale is not None:  # scores as with the usual scale
                module.query.weight.mul_(module.config.head_size**-0.5 / module.config.scale)
            if isinstance(module, Decoder) and isinstance(module.head, LanguageHead) and module.head.scale != 1:
                _set_final_norm(module, 1 / module.head.scale)
            if isinstance(module, ResidualUnit):
                module.begin_as_identity()
            for last in _last_of_branch(module):
                if last not in gated:
                    last.weight.zero_()


def _linear(layer: nn.Linear, recipe: Recipe, generator: torch.Generator) -> None:
    if recipe == "classic":
        bound = math.sqrt(6 / (layer.in_features + layer.out_features))
        layer.weight.uniform_(-bound, bound, generator=generator)
    else:
        layer.weight.normal_(0, 1 / math.sqrt(layer.in_features), generator=generator)
    if layer.bias is not None:
        layer.bias.zero_()


def _set_final_norm(decoder: Decoder, value: float) -> None:
    """For an output that scales what the norm returns."""
    weight = getattr(decoder.stack.final_norm, "weight", None)
    if isinstance(weight, nn.Parameter):
        weight.fill_(value)


def _last_of_branch(module: nn.Module) -> list[nn.Linear]:
    if isinstance(module, Attention):
        return [module.output]
    if isinstance(module, FeedForward):
        return [module.down]
    if isinstance(module, DetectHead):
        return [module.classes.last, module.boxes.last]
    last = [getattr(module, name, None) for name in ("project", "distilled")] if isinstance(module, Head) else []
    return [layer for layer in last if isinstance(layer, nn.Linear)]
