"""Products of tokens with vectors of relative positions: for each pair of tokens, that with the vector of its distance.

Where each distance has a vector of its own, the products are read skewed: row i begins one place further left than row
i − 1, which is a matter of strides (Transformer-XL's shift, Dai et al. 2019). Of the products of all tokens with all
vectors only half would be read, so tokens are taken in blocks, each with the vectors that it can reach."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

BLOCK = 32  # tokens; fewer compute fewer products that are not read, in more and smaller matrix products


def relative_scores(x: Tensor, vectors: Tensor, rows: Tensor | None, *, transpose: bool = False) -> Tensor:
    """(batch, head, token, size) and (head, row, size) → (batch, head, query, key). `rows` is the row of each pair,
    (query, key) or (batch, query, key); None: the rows are those of all distances, from that of the last query to the
    first key on. `transpose`: the tokens are the keys, and rows to be read skewed are ordered by query − key."""
    if rows is None:
        out = _SkewedProduct.apply(x, vectors)
    else:
        products = _by_head(_flat(x) @ vectors.transpose(-2, -1), len(x)).transpose(0, 1)  # (batch, head, token, row)
        rows = rows[:, None] if rows.ndim == 3 else rows
        rows = rows.transpose(-2, -1) if transpose else rows
        out = products.gather(-1, rows.expand(*products.shape[:-1], rows.shape[-1]))
    return out.transpose(-2, -1) if transpose else out


class _SkewedProduct(torch.autograd.Function):
    """out[i, j] = x[i] · vectors[j − i + tokens − 1]"""

    @staticmethod
    def forward(ctx: Any, x: Tensor, vectors: Tensor) -> Tensor:
        ctx.save_for_backward(x, vectors)
        keys = vectors.shape[1] - x.shape[2] + 1
        vectors, out = _padded(vectors), x.new_empty(*x.shape[:-1], keys)
        for tokens, reach in _blocks(x.shape[2], keys):
            products = _flat(x[:, :, tokens]) @ vectors[:, reach].transpose(1, 2)
            out[:, :, tokens] = _skewed(_by_head(products, len(x)), keys).transpose(0, 1)
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
            dx[:, :, tokens] = _by_head(products.flatten(1, 2) @ vectors[:, reach], batch).transpose(0, 1)
            d_vectors[:, reach].baddbmm_(products.flatten(1, 2).transpose(1, 2), _flat(part))
        return dx, d_vectors[:, :-1]


def _blocks(tokens: int, keys: int) -> Iterator[tuple[slice, slice]]:
    """The tokens of each block and the vectors within their reach, with one more that makes their number even."""
    for start in range(0, tokens, BLOCK):
        end = min(start + BLOCK, tokens)
        yield slice(start, end), slice(tokens - end, tokens - start + keys)


def _padded(vectors: Tensor) -> Tensor:
    return F.pad(vectors, (0, 0, 0, 1))  # for the last block's one more


def _flat(x: Tensor) -> Tensor:  # (batch, head, token, size) → (head, batch · token, size)
    return x.transpose(0, 1).flatten(1, 2)


def _by_head(x: Tensor, batch: int) -> Tensor:  # (head, batch · token, n) → (head, batch, token, n)
    return x.unflatten(1, (batch, -1))


def _skewed(x: Tensor, keys: int) -> Tensor:
    """A view of a contiguous tensor: (…, n, at least keys + n − 1) → (…, n, keys), [i, j] ↦ [i, j − i + n − 1]."""
    *batch, n, width = x.shape
    return x.as_strided([*batch, n, keys], [*x.stride()[:-2], width - 1, 1], x.storage_offset() + n - 1)
