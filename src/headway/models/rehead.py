"""A trained model with another head: fine-tuning (BERT, Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from headway.errors import ConfigError
from headway.models.build import build
from headway.models.config import HeadConfig
from headway.models.decoder import Decoder
from headway.models.encoder import Encoder
from headway.models.heads import ClassifyHead, Head, LanguageHead, Pooler, TokenHead, build_head


def with_head(model: nn.Module, head: HeadConfig, *, seed: int = 0) -> Encoder | Decoder:
    """A model of the same shape with another head. Below the head it shares the tensors of `model`, and keeps a
    pooler's dense layer if the new head has such a layer too; the rest of the head depends on the seed alone."""
    if not isinstance(model, Encoder | Decoder):
        raise ConfigError(f"a new head goes on an encoder or a decoder, not on {type(model).__name__}")
    fresh = build(replace(model.config, head=head), device="meta")
    assert isinstance(fresh, Encoder | Decoder)
    fresh.embedding, fresh.stack = model.embedding, model.stack
    made = build_head(model.config.stack.block.width, model.config.embedding.vocab, head)
    assert made is not None
    _initialise(made, seed)
    some = next(model.parameters())
    fresh.head = made.to(some.device, some.dtype)
    if isinstance(made, ClassifyHead) and _same_dense(made, model.head):
        made.dense = model.head.dense  # type: ignore[union-attr,assignment]
    return fresh.train(model.training)


def logit_head(model: nn.Module) -> LanguageHead | ClassifyHead | TokenHead:
    """The head whose logits alone decide the prediction."""
    head = getattr(model, "head", None)
    if isinstance(head, LanguageHead | ClassifyHead | TokenHead):
        return head
    raise ConfigError(
        f"a model that chooses among labels or tokens with one head is needed, not {type(model).__name__}"
    )


@torch.no_grad()
def apply_temperature(model: nn.Module, temperature: float) -> None:
    """Divides the model's logits by a number, in its weights: those of the output layer or, where these are the token
    embedding too, the scale before it."""
    head = logit_head(model)
    last: nn.Module | None = head.project
    if last is None:
        assert isinstance(head, LanguageHead) and isinstance(model, Encoder | Decoder)
        last = head.norm if head.norm is not None else model.stack.final_norm
    if last is None or getattr(last, "weight", None) is None:
        raise ConfigError("the output layer is the token embedding, and no learned norm stands before it to scale")
    for part in (last.weight, getattr(last, "bias", None), getattr(head, "bias", None)):
        if isinstance(part, nn.Parameter):
            part.div_(temperature)


def _same_dense(new: ClassifyHead, old: nn.Module | None) -> bool:
    return isinstance(old, Pooler | ClassifyHead) and new.dense is not None and new.activation is old.activation


@torch.no_grad()
def _initialise(head: Head, seed: int) -> None:
    """BERT's first values: small normal matrices, no bias."""
    generator = torch.Generator().manual_seed(seed)
    for module in head.modules():
        if isinstance(module, nn.Linear):
            module.weight.normal_(0, 0.02, generator=generator)
            if module.bias is not None:
                module.bias.zero_()
