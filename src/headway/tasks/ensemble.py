"""How the members beside a classifier of texts are trained (models/ensemble.py): n-grams are found in the training
texts and their linear map is fitted before the first step, convolutions learn in the same steps as the network, and the
weights are fitted to held-out texts at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.errors import ConfigError
from headway.layers.ngrams import MOST_ORDER, NgramConfig, NgramLinear
from headway.layers.token_convolution import TokenConvolutionConfig
from headway.models.config import EnsembleConfig
from headway.models.ensemble import NETWORK, members_of
from headway.models.protocol import Model
from headway.tasks.ngram_features import Ngrams, find_ngrams, fit_ngrams, fit_weights, weighted_sum

MOST_FILTERS = 1000
SHOWN = {NETWORK: "network", "ngrams": "n-grams", "convolution": "convolutions"}


@dataclass
class Members:
    """Those that the options of a task ask for."""

    ngrams: int  # of up to so many tokens; 0: none
    convolutions: int  # filters of each size; 0: none
    strength: float  # of the L2 penalty of the linear map
    features: Ngrams | None = None  # of the training texts

    def __post_init__(self) -> None:
        for name, most in (("ngrams", MOST_ORDER), ("convolutions", MOST_FILTERS)):
            if not 0 <= getattr(self, name) <= most:
                raise ConfigError(f"{name} is {getattr(self, name)}: it must be from 0 to {most}")

    @property
    def options(self) -> list[str]:
        """The options that ask for one."""
        return [name for name in ("ngrams", "convolutions") if getattr(self, name)]

    def find(self, texts: Sequence[np.ndarray], *, vocab: int, outputs: int) -> None:
        """The n-grams of the training texts, given as token ids, that become features."""
        if self.ngrams:
            self.features = find_ngrams(texts, vocab=vocab, order=self.ngrams, outputs=outputs)

    def config(self, network: Any, *, vocab: int) -> Any:
        """The config of an ensemble around the network's; the network's own where there are no members."""
        count = 0 if self.features is None else len(self.features.keys)
        ngrams = NgramConfig(count, vocab, self.ngrams) if count else None
        convolution = TokenConvolutionConfig(vocab, filters=self.convolutions) if self.convolutions else None
        return EnsembleConfig(network, ngrams, convolution) if ngrams or convolution else network

    def fit(
        self, model: Model, texts: Sequence[np.ndarray], wanted: np.ndarray, *, spelling: Callable[[int], str]
    ) -> None:
        """Fits the linear map. `wanted` (text, output) is the probability that each output should have."""
        layer = members_of(model).get("ngrams")
        if layer is not None and self.features is not None:
            options: dict[str, Any] = {"spelling": spelling, "strength": self.strength}
            fit_ngrams(cast(NgramLinear, layer), self.features, texts, wanted, **options)


def cross_fitted(logits: Tensor, wanted: Tensor, half: Tensor) -> Tensor:
    """Logits (example, output) of the ensemble, from those of its parts (part, example, output), each example with
    weights that are fitted to the half of the examples that it is not in."""
    out = torch.empty_like(logits[0])
    for scored in (half, ~half):
        fitted = ~scored if (~scored).any() else scored  # one example alone
        weights = fit_weights(logits[:, fitted], wanted[fitted])
        out[scored] = weighted_sum(logits[:, scored], weights)
    return out


def fitted_line(model: Any, logits: Tensor, wanted: Tensor) -> str:
    """Sets the weights with the lowest loss on held-out examples, and says what each part is worth."""
    weights = fit_weights(logits, wanted)
    model.set_weights(weights)
    known = wanted.any(-1)

    def loss(parts: Tensor) -> float:
        """Of some of the parts alone, with weights of their own."""
        both = weighted_sum(parts[:, known], fit_weights(parts, wanted))
        return float(F.cross_entropy(both, wanted[known].to(both.dtype)))

    worth = [
        f"{SHOWN[name]} {weight:.2f} (loss {loss(part[None]):.3f} alone)"
        for (name, weight), part in zip(model.weights.items(), logits, strict=True)
    ]
    return (
        f"weights      of the logits: {', '.join(worth)}; loss {loss(logits):.3f} together. They are fitted to "
        f"{len(wanted):,} held-out examples; each half of them is scored with weights that are fitted to the other"
    )
