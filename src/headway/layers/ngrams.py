"""A linear map of the n-grams of a text's tokens, which stands beside a network (wide & deep, Cheng et al. 2016).

The features are TF-IDF weights as in scikit-learn's TfidfVectorizer with `sublinear_tf` (Salton & Buckley 1988): (1 +
log tf) · idf, and a text's features have length 1. An n-gram is known by one number, its token ids as the digits; those
that have a weight are in `keys`. Nothing here is trained by gradients: all tensors are buffers, and `fit` of a linear
model sets them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST_ORDER = 3
LARGEST_KEY = 2**63 - 1


@dataclass(frozen=True)
class NgramConfig:
    features: int  # n-grams that have a weight
    vocab: int
    order: int = 2  # n-grams of one token up to so many

    def problem(self) -> str | None:
        if not 1 <= self.order <= MOST_ORDER or (self.vocab + 1) ** self.order > LARGEST_KEY:
            return f"order is {self.order}: it must be from 1 to {MOST_ORDER}, for this vocabulary"
        return None


class NgramLinear(nn.Module):
    keys: Tensor
    idf: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(self, outputs: int, config: NgramConfig):
        super().__init__()
        self.config = config
        self.register_buffer("keys", torch.arange(config.features))  # (feature), ascending
        self.register_buffer("idf", torch.ones(config.features))  # inverse document frequencies
        self.register_buffer("weight", torch.zeros(config.features, outputs))
        self.register_buffer("bias", torch.zeros(outputs))

    def forward(self, ids: Tensor, padding_mask: Tensor | None) -> Tensor:  # (batch, output)
        places, values = self.features(ids, padding_mask)
        return F.embedding_bag(places, self.weight, per_sample_weights=values, mode="sum") + self.bias

    def features(self, ids: Tensor, padding_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Indices of features and their values, each (batch, n-gram); a value of 0 stands for no feature."""
        keys, real = ngram_keys(ids, padding_mask, self.config)
        last = self.config.features - 1
        places = torch.searchsorted(self.keys, keys).clamp(max=last)
        places = torch.where(real & (self.keys[places] == keys), places, last + 1)  # unknown n-grams come last
        places = places.sort(dim=1).values
        first = torch.searchsorted(places, places)
        count = torch.searchsorted(places, places, right=True) - first
        counted_once = first == torch.arange(places.shape[1], device=places.device)
        counted_once &= places <= last
        places = places.clamp(max=last)
        values = torch.where(counted_once, (1 + count.log()) * self.idf[places].float(), 0.0)
        return places, F.normalize(values, dim=1).to(self.weight.dtype)


def ngram_keys(ids: Tensor, padding_mask: Tensor | None, config: NgramConfig) -> tuple[Tensor, Tensor]:
    """The n-grams of each text as numbers, and whether all tokens of each are real; (batch, n-gram)."""
    real = torch.ones_like(ids, dtype=torch.bool) if padding_mask is None else padding_mask.bool()
    digits = ids.long() + 1
    keys, whole = [digits], [real]
    for size in range(1, min(config.order, ids.shape[1])):
        keys.append(keys[-1][:, :-1] * (config.vocab + 1) + digits[:, size:])
        whole.append(whole[-1][:, :-1] & real[:, size:])
    return torch.cat(keys, dim=1), torch.cat(whole, dim=1)
