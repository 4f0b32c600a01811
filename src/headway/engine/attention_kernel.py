"""One query meets the keys of its past, compiled: `attend` of the layers, for a token at a time."""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.engine import tiles
from headway.engine.kernels import fast
from headway.engine.llvm import WIDE
from headway.engine.scalars import bytes_at, exp, floats

LEAST = np.float32(-np.inf)


@fast
def attend(
    q: int,  # the query, (size)
    keys: int,  # (key, size)
    values: int,  # (key, size)
    size: int,
    begin: int,  # keys from here …
    end: int,  # … to here may be seen
    mask: int,  # a byte a key, 0 = may not be seen; no address: all may
    bias: int,  # added to the scores, by distance from the last key backwards; no address: nothing
    scale: Any,
    scores: int,  # room for `end` numbers
    out: int,  # (size)
) -> None:
    if mask:  # padding at the beginning costs nothing
        hidden = bytes_at(mask, end)
        while begin < end and not hidden[begin]:
            begin += 1
    weights, steps, row = floats(scores, end), size // WIDE, 4 * size
    query = floats(q, size)
    key = begin
    while key + 4 <= end and steps * WIDE == size:
        tiles.KEYS(keys + key * row, row, q, row, steps, 1, 0, 0, 0, scores + 4 * key, 0)
        key += 4
    while key < end:
        one, score = floats(keys + key * row, size), np.float32(0)
        for i in range(size):
            score += one[i] * query[i]
        weights[key] = score
        key += 1
    if bias:
        extra = floats(bias, end)
        for key in range(begin, end):
            weights[key] = weights[key] * scale + extra[end - 1 - key]
    else:
        for key in range(begin, end):
            weights[key] *= scale
    if mask:
        seen = bytes_at(mask, end)
        for key in range(begin, end):
            if not seen[key]:
                weights[key] = LEAST
    most = LEAST
    for key in range(begin, end):
        most = max(most, weights[key])
    mixed = floats(out, size)
    for i in range(size):
        mixed[i] = np.float32(0)
    if most == LEAST:  # a padded query may look at nothing
        return
    for key in range(begin, end):
        weights[key] = exp(weights[key] - most)
    if mask:
        seen = bytes_at(mask, end)
        for key in range(begin, end):
            if not seen[key]:
                weights[key] = np.float32(0)
    total = np.float32(0)
    for key in range(begin, end):
        total += weights[key]
    _mix(weights, values, size, begin, end, mixed)
    for i in range(size):
        mixed[i] /= total


@fast
def _mix(weights: Any, values: int, size: int, begin: int, end: int, mixed: Any) -> None:
    row, key = 4 * size, begin
    while key + 4 <= end:
        a, b = floats(values + key * row, size), floats(values + (key + 1) * row, size)
        c, d = floats(values + (key + 2) * row, size), floats(values + (key + 3) * row, size)
        u, v, w, x = weights[key], weights[key + 1], weights[key + 2], weights[key + 3]
        for i in range(size):
            mixed[i] += u * a[i] + v * b[i] + w * c[i] + x * d[i]
        key += 4
    while key < end:
        one, weight = floats(values + key * row, size), weights[key]
        for i in range(size):
            mixed[i] += weight * one[i]
        key += 1
