"""Scores of tokens with the vectors of their distances. The products are read skewed: row i begins one place further
left than row i − 1, which is a matter of strides (Transformer-XL's shift, Dai et al. 2019). Of the products of all
tokens with all vectors only half would be read, so tokens are taken in blocks, each with the vectors that it can
reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.layers.relative import by_head, flat

BLOCK = 32  # tokens; fewer compute fewer products that are not read, in more and smaller matrix products


class SkewedProduct(torch.autograd.Function):
    """out[i, j] = x[i] · vectors[j − i + tokens − 1]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(x, vectors)
        keys = vectors.shape[1] - x.shape[2] + 1
        vectors, out = _padded(vectors), x.new_empty(*x.shape[:-1], keys)
        for tokens, reach in _blocks(x.shape[2], keys):
            products = flat(x[:, :, tokens]) @ vectors[:, reach].transpose(1, 2)
            out[:, :, tokens] = _skewed(by_head(products, len(x)), keys).transpose(0, 1)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, vectors = ctx.saved_tensors
        batch, heads, _, keys = g.shape
        vectors = _padded(vectors)
        dx, d_vectors = torch.empty_like(x), torch.zeros_like(vectors)
        for tokens, reach in _blocks(x.shape[2], keys):
            part = x[:, :, tokens]
            products = g.new_zeros(heads, batch, part.shape[2], reach.stop - reach.start)
            _skewed(products, keys).copy_(g[:, :, tokens].transpose(0, 1))
            dx[:, :, tokens] = by_head(products.flatten(1, 2) @ vectors[:, reach], batch).transpose(0, 1)
            d_vectors[:, reach].baddbmm_(products.flatten(1, 2).transpose(1, 2), flat(part))
        return dx, d_vectors[:, :-1]


def _blocks(tokens: int, keys: int) -> Iterator[tuple[slice, slice]]:
    """The tokens of each block and the vectors within their reach, with one more that makes their number even."""
    for start in range(0, tokens, BLOCK):
        end = min(start + BLOCK, tokens)
        yield slice(start, end), slice(tokens - end, tokens - start + keys)


def _padded(vectors: Tensor) -> Tensor:
    return F.pad(vectors, (0, 0, 0, 1))  # for the last block's one more


def _skewed(x: Tensor, keys: int) -> Tensor:
    """A view of a contiguous tensor: (…, n, at least keys + n − 1) → (…, n, keys), [i, j] ↦ [i, j − i + n − 1]."""
    *batch, n, width = x.shape
    return x.as_strided([*batch, n, keys], [*x.stride()[:-2], width - 1, 1], x.storage_offset() + n - 1)
