"""The one formula, softmax(QKᵀ/√d_k)V (Vaswani et al. 2017, section 3.2.1; seeds 000–002).

Two ways to the same numbers: `attend` takes the fused kernel, `attend_with_weights` computes every step and returns the
weights too. Tests compare them, in train mode and with gradients.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from headway.layers.dropout import drop
from headway.layers.masks import NO_MASK, Mask
from headway.layers.replaceable import replaceable


def attend(
    q: Tensor,  # (batch, head, query, d_k)
    k: Tensor,  # (batch, kv_head, key, d_k)
    v: Tensor,  # (batch, kv_head, key, d_v)
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | None = None,  # added to the scaled scores; broadcasts to (batch, head, query, key)
    scale: float | None = None,  # None: 1/√d_k
    dropout: float = 0.0,
) -> Tensor:  # (batch, head, query, d_v)
    queries, keys = q.shape[-2], k.shape[-2]
    grouped = k.shape[1] != q.shape[1]
    plain = mask.allowed is None and bias is None and queries == keys
    if mask.sequence_lengths is not None and plain and len(q) == 1:
        return _attend_sequences(q, k, v, mask=mask, scale=scale, dropout=dropout)
    if mask.causal and plain and mask.sequence_lengths is None and mask.window is None:
        return F.scaled_dot_product_attention(
            q, k, v, is_causal=queries > 1, scale=scale, dropout_p=dropout, enable_gqa=grouped
        )
    allowed = mask.tensor(queries, keys, q.device)
    if bias is not None:
        return attend_with_bias(q, k, v, bias, allowed, scale, dropout)
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=allowed, scale=scale, dropout_p=dropout, enable_gqa=grouped
    )


@replaceable
def attend_with_bias(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor,
    allowed: Tensor | None,  # broadcasts to (batch, head, query, key), as the bias; True = may attend
    scale: float | None,
    dropout: float,
) -> Tensor:  # (batch, head, query, d_v)
    bias = bias.to(q.dtype) if allowed is None else bias.to(q.dtype).masked_fill(~allowed, -math.inf)
    grouped = k.shape[1] != q.shape[1]
    return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=scale, dropout_p=dropout, enable_gqa=grouped)


def _attend_sequences(q: Tensor, k: Tensor, v: Tensor, *, mask: Mask, scale: float | None, dropout: float) -> Tensor:
    """Sequences laid end to end in one row; neighbours of equal length are computed as one batch."""
    assert mask.sequence_lengths is not None
    runs = [(length, len(list(run))) for length, run in itertools.groupby(mask.sequence_lengths)]
    sizes = [length * count for length, count in runs]
    out = []
    for (length, count), *parts in zip(runs, *(x[0].split(sizes, dim=1) for x in (q, k, v)), strict=True):
        batch = [part.unflatten(1, (count, length)).transpose(0, 1) for part in parts]  # (sequence, head, length, d)
        z = attend(*batch, mask=Mask(causal=mask.causal, window=mask.window), scale=scale, dropout=dropout)
        out.append(z.transpose(0, 1).flatten(1, 2))  # (head, sequence · length, d)
    return torch.cat(out, dim=1)[None]


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | None = None,
    scale: float | None = None,
    heads: Sequence[int] | None = None,
    rows: Sequence[int] | None = None,
) -> tuple[Tensor, Tensor]:
    """(scores, weights), both (batch, head, query, key): the scaled scores, -inf where masked, and their softmax.
    `heads` and `rows` (queries, counted from the first) restrict the computation to some of them."""
    queries, keys, count = q.shape[-2], k.shape[-2], q.shape[1]
    allowed = mask.tensor(queries, keys, q.device)
    k = take(k, None if heads is None else [head * k.shape[1] // count for head in heads], None)
    q = take(q, heads, rows)
    scores = (q * score_scale(q.shape[-1], scale)) @ repeat_groups(k, q.shape[1]).transpose(-2, -1)
    if bias is not None:
        scores = scores + take(bias, heads, rows).to(scores.dtype)
    if allowed is not None:
        scores = scores.masked_fill(~take(allowed, heads, rows), -math.inf)
    return scores, scores.softmax(-1) if allowed is None else softmax(scores)


def score_scale(size: int, scale: float | None = None) -> float:
    """What the scores are multiplied by: 1/√d_k, or as given."""
    return 1.0 / math.sqrt(size) if scale is None else scale


def softmax(scores: Tensor) -> Tensor:
    """A query that may attend to nothing (a padded row) gets weights of zero, as from the fused kernel."""
    return scores.softmax(-1).masked_fill(scores == -math.inf, 0.0)


def attend_with_weights(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Mask = NO_MASK,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """The explicit path: (values, weights). Weights are returned before dropout."""
    _, weights = attention_weights(q, k, mask=mask, bias=bias, scale=scale)
    return drop(weights, dropout) @ repeat_groups(v, q.shape[1]), weights


def repeat_groups(x: Tensor, heads: int) -> Tensor:
    """(batch, kv_head, key, d) → (batch, head, key, d): each key/value head serves a group of query heads."""
    groups = heads // x.shape[1]
    return x if groups == 1 else torch.repeat_interleave(x, groups, dim=1)


def take(x: Tensor, heads: Sequence[int] | None, rows: Sequence[int] | None) -> Tensor:
    """Some heads and queries of what broadcasts to (batch, head, query, any). A dimension of size one stays."""
    if heads is not None and x.ndim > 2 and x.shape[-3] > 1:
        x = x[..., list(heads), :, :]
    return x if rows is None or x.shape[-2] == 1 else x[..., list(rows), :]
