"""Filters applied before sampling only: temperature, top-k, top-p (Holtzman et al. 2020), min-p (Nguyen et al. 2024),
typical (Meister et al. 2023); and the draw itself."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from headway.generation.filters import Filter, History
from headway.generation.settings import GenerationSettings

HEAD = 512  # tokens in which top-p looks first


def sampling_filters(settings: GenerationSettings) -> tuple[Filter, ...]:
    out: list[Filter] = []
    if settings.temperature != 1:
        out.append(Temperature(settings.temperature))
    if settings.top_k:
        out.append(TopK(settings.top_k))
    if settings.top_p < 1:
        out.append(TopP(settings.top_p))
    if settings.min_p > 0:
        out.append(MinP(settings.min_p))
    if settings.typical_p < 1:
        out.append(Typical(settings.typical_p))
    return tuple(out)


@dataclass(frozen=True)
class Temperature:
    temperature: float

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        return scores / self.temperature


@dataclass(frozen=True)
class TopK:
    """Keeps the k best tokens; ties with the last of them stay too."""

    k: int

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        last = scores.topk(min(self.k, scores.shape[1])).values[:, -1:]
        return scores.masked_fill(scores < last, -math.inf)


@dataclass(frozen=True)
class TopP:
    """Keeps the fewest best tokens that together have probability p. The whole vocabulary is sorted only when the best
    few hundred tokens have less than that."""

    p: float

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        total = scores.logsumexp(-1, keepdim=True)
        best, where = scores.topk(min(HEAD, scores.shape[1]))
        if bool(((best - total).exp().sum(-1) < self.p).any()):
            best, where = scores.sort(dim=-1, descending=True)
        probability = (best - total).exp()
        before = probability.cumsum(-1) - probability  # of all better tokens
        return torch.full_like(scores, -math.inf).scatter(1, where, best.masked_fill(before >= self.p, -math.inf))


@dataclass(frozen=True)
class MinP:
    """Keeps the tokens that are at least p times as probable as the best one."""

    p: float

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        return scores.masked_fill(scores < scores.amax(-1, keepdim=True) + math.log(self.p), -math.inf)


@dataclass(frozen=True)
class Typical:
    """Keeps the tokens whose surprisal is nearest the entropy, until they have probability `mass` together."""

    mass: float

    def __call__(self, scores: Tensor, history: History) -> Tensor:
        log_p = scores.log_softmax(-1)
        p = log_p.exp()
        entropy = -(p * log_p).nansum(-1, keepdim=True)
        distance = (log_p + entropy).abs()
        ordered, where = distance.sort(dim=-1)
        last = (p.gather(1, where).cumsum(-1) < self.mass).sum(-1, keepdim=True).clamp(max=scores.shape[1] - 1)
        return scores.masked_fill(distance > ordered.gather(1, last), -math.inf)


def draw(scores: Tensor, uniform: Tensor) -> Tensor:
    """Samples one token per row, (row), by inverting the row's cumulative distribution at its number in `uniform`
    (row), which is in [0, 1)."""
    cumulative = scores.double().softmax(-1).cumsum(-1)
    cumulative = cumulative / cumulative[:, -1:]  # ends at exactly 1, at the last token that may be chosen
    choice = torch.searchsorted(cumulative, uniform[:, None].contiguous(), right=True).squeeze(1)
    return choice.clamp(max=scores.shape[1] - 1)
