"""A trained model with another head: fine-tuning (BERT, Devlin et al. 2019)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from headway.errors import ConfigError
from headway.models.bilm import BiLM
from headway.models.build import build
from headway.models.config import EncoderConfig, HeadConfig
from headway.models.decoder import Decoder
from headway.models.detector import Detector
from headway.models.encoder import Encoder
from headway.models.ensemble import Ensemble
from headway.models.heads import RARE, ClassifyHead, Head, LanguageHead, Pooler, TokenHead, build_head
from headway.models.protocol import Model
from headway.models.two_stream import TwoStream


def with_head(model: nn.Module, head: HeadConfig, *, seed: int = 0) -> Encoder | Decoder:
    """A model of the same shape with another head. Below the head it shares the tensors of `model`, and keeps a
    pooler's dense layer if the new head has such a layer too; the rest of the head depends on the seed alone."""
    if not isinstance(model, Encoder | Decoder | TwoStream | BiLM):
        raise ConfigError(f"a new head goes on an encoder or a decoder, not on {type(model).__name__}")
    fresh = build(replace(config_to_fine_tune(model), head=head), device="meta")
    assert isinstance(fresh, Encoder | Decoder | BiLM)
    fresh.embedding, fresh.stack = model.embedding, model.stack
    width = fresh.head_width if isinstance(fresh, BiLM) else model.config.stack.block.width
    made = build_head(width, model.config.embedding.vocab, head)
    assert made is not None
    _initialise(made, seed)
    some = next(model.parameters())
    fresh.head = made.to(some.device, some.dtype)
    if isinstance(made, ClassifyHead) and _same_dense(made, model.head):
        made.dense = model.head.dense  # type: ignore[union-attr,assignment]
    return fresh.train(model.training)  # type: ignore[return-value]


def config_to_fine_tune(model: Model) -> Any:
    """The config of a model without its head: with two streams, that of its content stream, an encoder."""
    if isinstance(model, TwoStream):
        return EncoderConfig(model.config.embedding, model.config.stack)
    return replace(model.config, head=None)


def with_labels(model: Model, labels: int, *, seed: int = 0) -> Model:
    """A detector with other classes: it shares the tensors of `model` but for those whose size is the number of
    classes, which depend on the seed alone."""
    head = replace(model.head_config, labels=labels)
    if isinstance(model, Detector):
        fresh: Model = build(replace(model.config, decoder=replace(model.config.decoder, head=head)), device="meta")
    elif isinstance(model, Encoder):
        fresh = build(replace(model.config, head=head), device="meta")
    else:
        raise ConfigError(f"other classes go on a detector, not on {type(model).__name__}")
    some, generator, state = next(model.parameters()), torch.Generator().manual_seed(seed), model.state_dict()
    last = f".classes.layers.{head.class_layers - 1}."
    for name, tensor in fresh.state_dict().items():
        if last not in f".{name}" and not name.endswith("anchors.labels.weight"):
            continue
        new = torch.full(tensor.shape, 0.0 if head.no_object else RARE)
        if tensor.ndim == 2:
            new = torch.randn(tensor.shape, generator=generator) * 0.02
        state[name] = new.to(some)
    fresh.load_state_dict(state, assign=True)
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
    if isinstance(model, Ensemble):
        model.set_weights([weight / temperature for weight in model.weights.values()])
        return
    head = logit_head(model)
    last: nn.Module | None = head.project
    if last is None:
        assert isinstance(head, LanguageHead) and isinstance(model, Encoder | Decoder)
        last = head.norm if head.norm is not None else model.stack.final_norm
    if last is None or getattr(last, "weight", None) is None:
        raise ConfigError("the output layer is the token embedding, and no learned norm stands before it to scale")
    second = getattr(head, "distilled", None)
    for layer in (last, *([] if second is None else [second])):
        layer.weight.div_(temperature)
    for bias in (getattr(last, "bias", None), getattr(head, "bias", None), getattr(second, "bias", None)):
        if isinstance(bias, nn.Parameter):
            bias.div_(temperature)


@torch.no_grad()
def apply_scale(model: nn.Module, *, mean: float, std: float) -> None:
    """Multiplies the model's outputs by `std` and adds `mean`, in the weights of its output layer."""
    head = logit_head(model)
    last = head.project
    bias = getattr(last, "bias", None)
    if last is None or (bias is None and mean):
        raise ConfigError("the output layer has no weights or no bias of its own that the scale could go into")
    last.weight.mul_(std)
    if bias is not None:
        bias.mul_(std).add_(mean)


def _same_dense(new: ClassifyHead, old: nn.Module | None) -> bool:
    if not isinstance(old, Pooler | ClassifyHead) or new.dense is None or old.dense is None:
        return False
    return new.activation is old.activation and (new.dense.bias is None) == (old.dense.bias is None)


@torch.no_grad()
def _initialise(head: Head, seed: int) -> None:
    """BERT's first values: small normal matrices, no bias."""
    generator = torch.Generator().manual_seed(seed)
    for module in head.modules():
        if isinstance(module, nn.Linear):
            module.weight.normal_(0, 0.02, generator=generator)
            if module.bias is not None:
                module.bias.zero_()
