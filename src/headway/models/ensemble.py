"""A classifier of texts, and simpler ones that read the same tokens: the weighted sum of their logits decides.

Each member learns to classify alone. The weights are fitted to texts that none of them was trained on (stacking,
Wolpert 1992), and are part of the config.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from headway.layers.ngrams import NgramLinear
from headway.layers.token_convolution import TokenConvolution
from headway.models.config import EnsembleConfig, ModelConfig
from headway.models.outputs import Output
from headway.models.protocol import HeadKind, Inputs, Model, Part, Shape

NETWORK = "network"  # the name of the model that the members stand beside
NETWORK_PREFIX = "model."  # of its tensors and taps


@dataclass
class EnsembleOutput(Output):
    members: Mapping[str, Tensor] = field(default_factory=dict)  # (batch, labels) each, before they are weighted


class Ensemble(Model):
    """In training the logits are the network's alone, and those of the other members that are trained stand in
    `members`; otherwise the logits are the sum, and `members` has the network's too."""

    def __init__(self, config: EnsembleConfig, model: Model):
        super().__init__()
        self.config, self.model = config, model
        labels = config.model.head.labels  # type: ignore[union-attr]
        self.ngrams = NgramLinear(labels, config.ngrams) if config.ngrams else None
        self.convolution = TokenConvolution(labels, config.convolution) if config.convolution else None
        self.register_load_state_dict_pre_hook(_renamed)

    @property
    def members(self) -> dict[str, nn.Module]:
        """Those beside the network; each maps token ids and their padding mask to logits."""
        both = {"ngrams": self.ngrams, "convolution": self.convolution}
        return {name: member for name, member in both.items() if member is not None}

    @property
    def weights(self) -> dict[str, float]:
        names = [NETWORK, *self.members]
        return dict(zip(names, self.config.weights or [1.0] * len(names), strict=True))

    def set_weights(self, weights: Sequence[float]) -> None:
        self.config = replace(self.config, weights=tuple(weights))

    def remove_members(self) -> None:
        self.ngrams = self.convolution = None
        self.config = EnsembleConfig(self.config.model)

    def forward(self, inputs: Tensor, *, padding_mask: Tensor | None = None, **more: Any) -> EnsembleOutput:
        output = self.model(inputs, padding_mask=padding_mask, **more)
        if not self.training:
            logits = {NETWORK: output.logits, **self.member_logits(inputs, padding_mask)}
            return EnsembleOutput(**{**vars(output), "logits": self._sum(logits)}, members=logits)
        trained = {} if self.convolution is None else {"convolution": self.convolution(inputs, padding_mask)}
        return EnsembleOutput(**vars(output), members=trained)

    def member_logits(self, inputs: Tensor, padding_mask: Tensor | None) -> dict[str, Tensor]:
        return {name: member(inputs, padding_mask) for name, member in self.members.items()}

    def combined(self, logits: Tensor, inputs: Tensor | None, padding_mask: Tensor | None) -> Tensor:
        assert inputs is not None
        return self._sum({NETWORK: logits, **self.member_logits(inputs, padding_mask)})

    def _sum(self, logits: Mapping[str, Tensor]) -> Tensor:
        weights, own = self.weights, logits[NETWORK]
        out = weights[NETWORK] * own
        for name in self.members:
            out = out + weights[name] * logits[name].to(own.dtype)
        return out

    def earlier_names(self) -> dict[str, str]:
        """Names of tensors in states of training that were saved when the members were parts of a head → their names
        now."""
        return {file_name(name): name for name in self.state_dict()}

    # --- what the network answers about itself

    @property
    def embedding(self) -> Any:
        return self.model.embedding

    @property
    def shape(self) -> Shape:
        return self.model.shape

    @property
    def parts(self) -> list[Part]:
        return [replace(part, prefix=NETWORK_PREFIX + part.prefix) for part in self.model.parts]

    @property
    def output_head(self) -> nn.Module | None:
        return self.model.output_head

    @property
    def inputs(self) -> Inputs:
        return self.model.inputs

    @property
    def head_kind(self) -> HeadKind | None:
        return self.model.head_kind

    @property
    def pools_one_token(self) -> bool:
        return self.model.pools_one_token

    @property
    def encodes(self) -> bool:
        return self.model.encodes

    @property
    def segments(self) -> int:
        return self.model.segments

    @property
    def max_length(self) -> int | None:
        return self.model.max_length

    @property
    def packs_sequences(self) -> bool:
        return self.model.packs_sequences

    def encode(self, inputs: Tensor, **more: Any) -> Tensor:  # (batch, length, width)
        """The network's hidden states."""
        return cast(Any, self.model).encode(inputs, **more)


def network_of(model: Model) -> Model:
    """The model without the members beside it."""
    return model.model if isinstance(model, Ensemble) else model


def members_of(model: nn.Module) -> dict[str, nn.Module]:
    """The members beside the network, by name; none for a model that is no ensemble."""
    return model.members if isinstance(model, Ensemble) else {}


def with_members(model: Any, config: ModelConfig, *, seed: int = 0) -> Any:
    """A trained classifier with the members of the config, if it has any; their first values depend on the seed
    alone."""
    if not isinstance(config, EnsembleConfig):
        return model
    made, some = Ensemble(config, model), next(model.parameters())
    for member in made.members.values():
        member.to(some.device, some.dtype)
    if made.convolution is not None:
        made.convolution.reset(torch.Generator().manual_seed(seed))
    return made.train(model.training)


def file_name(name: str) -> str:
    """The name of a tensor in a file: the network's as without members, the others' below the head."""
    return name.removeprefix(NETWORK_PREFIX) if name.startswith(NETWORK_PREFIX) else f"head.{name}"


def _renamed(model: Ensemble, state: dict[str, Tensor], *_: Any) -> None:
    names = model.earlier_names()
    for name in [name for name in state if name in names]:
        state[names[name]] = state.pop(name)
