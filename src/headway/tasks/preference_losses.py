"""Losses of learning from preferences, from summed log-probabilities of answers under the model and a reference model.

DPO (Rafailov et al. 2023), with smoothed labels (Mitchell 2023), IPO (Azar et al. 2023), robust DPO (Chowdhury et al.
2024), and KTO (Ethayarajh et al. 2024), which needs no pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

PairLoss = Literal["dpo", "ipo", "robust"]


@dataclass(frozen=True)
class Pairs:
    """Of N pairs, chosen first: log-probabilities under the model and the reference, and tokens, each (N, 2)."""

    model: Tensor
    reference: Tensor
    tokens: Tensor

    def log_ratios(self, kind: PairLoss) -> Tensor:
        """Of the model to the reference; for IPO the means over the tokens, as its authors recommend for answers of
        different length."""
        ratios = self.model - self.reference
        return ratios / self.tokens if kind == "ipo" else ratios

    def rewards(self, kind: PairLoss, beta: float) -> Tensor:
        """The rewards that the model is the optimal policy of, up to a term of the prompt."""
        return beta * self.log_ratios(kind).detach()


def pair_losses(pairs: Pairs, *, kind: PairLoss, beta: float, label_smoothing: float) -> Tensor:
    """(N). `label_smoothing` is the share of pairs that are taken to be in the wrong order."""
    chosen, rejected = pairs.log_ratios(kind).unbind(1)
    if kind == "ipo":
        return (chosen - rejected - 1 / (2 * beta)).square()
    margin = beta * (chosen - rejected)
    right, wrong = -F.logsigmoid(margin), -F.logsigmoid(-margin)
    if kind == "robust":  # unbiased where this share of the pairs is in the wrong order
        return ((1 - label_smoothing) * right - label_smoothing * wrong) / (1 - 2 * label_smoothing)
    return (1 - label_smoothing) * right + label_smoothing * wrong


def kto_losses(log_ratios: Tensor, desirable: Tensor, *, kl: Tensor, beta: float) -> Tensor:
    """(N). `kl` is the divergence from the reference, estimated on answers to other prompts and held constant."""
    baseline = kl.detach().clamp(min=0)
    sign = 2 * desirable.to(log_ratios.dtype) - 1
    return 1 - torch.sigmoid(beta * sign * (log_ratios - baseline))
