"""Integrated gradients (Sundararajan, Taly & Yan 2017): one logit as a sum over the tokens of the input.

All embeddings are scaled from zero to their own values; a token's contribution is its embedding times the mean of its
gradient on the way. The contributions and the logit without tokens add up to the logit, up to the error of the
quadrature. It needs gradients only, so it works where there is no residual stream, as in recurrent models; behind a
norm, which changes abruptly near zero, the quadrature is poor.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from headway.inspect.importance import logit
from headway.inspect.intervene import replace
from headway.inspect.parts import eval_mode
from headway.models.protocol import Model

STEPS = (16, 32, 64, 128, 256)  # points of the quadrature; more are taken while the sum misses the logit
TOLERANCE = 1e-3


@dataclass(frozen=True)
class TokenAttribution:
    logit: float  # the model's own
    baseline: float  # the logit with all embeddings at zero
    tokens: list[list[float]]  # of each sequence in the order in which the model embeds them: a value a token

    @property
    def total(self) -> float:
        return self.baseline + sum(value for sequence in self.tokens for value in sequence)


def integrated_gradients(
    model: Model,
    inputs: Mapping[str, Any],  # keyword arguments of the model's forward
    token: int,  # id in the vocabulary, or index of a label
    *,
    position: int = -1,  # if the head gives logits for every token
    row: int = 0,  # of the batch
    tap: str = "embedding.sum",
) -> TokenAttribution:
    """What each token adds to the logit of `token`."""
    score = logit(token, position=position, row=row)

    def at(scale: float) -> tuple[float, list[Tensor], list[Tensor]]:
        """The logit, the embeddings at their own values, and its gradients, with embeddings scaled."""
        own: list[Tensor] = []
        scaled: list[Tensor] = []

        def change(value: Tensor) -> Tensor:
            own.append(value.detach())
            scaled.append((scale * value.detach()).requires_grad_())
            return scaled[-1]

        with replace(model, tap, change):
            found = score(model(**inputs))
        gradients = torch.autograd.grad(found, scaled, allow_unused=True)
        zeros = (torch.zeros_like(each) if gradient is None else gradient
                 for each, gradient in zip(own, gradients, strict=True))  # fmt: skip
        return found.item(), own, list(zeros)

    with eval_mode(model), torch.enable_grad():
        full, baseline = at(1.0)[0], at(0.0)[0]
        found = TokenAttribution(full, baseline, [])
        for steps in STEPS:
            points, weights = np.polynomial.legendre.leggauss(steps)
            sums: list[Tensor] = []
            for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
                _, own, gradients = at(float(point))
                each = [
                    (x[row].double() * g[row].double()).sum(-1) * weight for x, g in zip(own, gradients, strict=True)
                ]
                sums = each if not sums else [a + b for a, b in zip(sums, each, strict=True)]
            found = TokenAttribution(full, baseline, [values.tolist() for values in sums])
            if abs(found.total - full) < TOLERANCE:
                break
    return found
