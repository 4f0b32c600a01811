"""Attention of one query over cached keys and values, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.engine import tiles
from headway.engine.kernels import fast
from headway.engine.llvm import LANES
from headway.engine.scalars import exp, floats, int8s

MINUS_INFINITY = np.float32(-np.inf)


@fast
def attend(
    q: int,  # the query, (size)
    keys: int,  # (key, size)
    values: int,  # (key, size)
    size: int,
    begin: int,  # attends to the keys [begin, end)
    end: int,
    mask: int,  # one byte per key, 0 = masked; address 0: no mask
    bias: int,  # added to the scores, by distance from the last key; address 0: none
    scale: Any,
    scores: int,  # scratch, `end` floats
    out: int,  # (size)
) -> None:
    if mask:  # skip padding on the right
        allowed = int8s(mask, end)
        while end > begin and not allowed[end - 1]:
            end -= 1
    weights, steps, row = floats(scores, end), size // LANES, 4 * size
    query = floats(q, size)
    key = begin
    while key + 4 <= end and steps * LANES == size:
        tiles.KEYS(keys + key * row, row, q, row, steps, 1, 0, 0, 0, scores + 4 * key, 0, 0, 0)
        key += 4
    while key < end:
        one, score = floats(keys + key * row, size), np.float32(0)
        for i in range(size):
            score += one[i] * query[i]
        weights[key] = score
        key += 1
    if bias:
        biases = floats(bias, end)
        for key in range(begin, end):
            weights[key] = weights[key] * scale + biases[end - 1 - key]
    else:
        for key in range(begin, end):
            weights[key] *= scale
    if mask:
        allowed = int8s(mask, end)
        for key in range(begin, end):
            if not allowed[key]:
                weights[key] = MINUS_INFINITY
    largest = MINUS_INFINITY
    for key in range(begin, end):
        largest = max(largest, weights[key])
    result = floats(out, size)
    for i in range(size):
        result[i] = np.float32(0)
    if largest == MINUS_INFINITY:  # all keys are masked
        return
    for key in range(begin, end):
        weights[key] = exp(weights[key] - largest)
    if mask:
        allowed = int8s(mask, end)
        for key in range(begin, end):
            if not allowed[key]:
                weights[key] = np.float32(0)
    total = np.float32(0)
    for key in range(begin, end):
        total += weights[key]
    _weighted_sum(weights, values, size, begin, end, result)
    for i in range(size):
        result[i] /= total


@fast
def _weighted_sum(weights: Any, values: int, size: int, begin: int, end: int, result: Any) -> None:
    row, key = 4 * size, begin
    while key + 4 <= end:
        a, b = floats(values + key * row, size), floats(values + (key + 1) * row, size)
        c, d = floats(values + (key + 2) * row, size), floats(values + (key + 3) * row, size)
        u, v, w, x = weights[key], weights[key + 1], weights[key + 2], weights[key + 3]
        for i in range(size):
            result[i] += u * a[i] + v * b[i] + w * c[i] + x * d[i]
        key += 4
    while key < end:
        one, weight = floats(values + key * row, size), weights[key]
        for i in range(size):
            result[i] += weight * one[i]
        key += 1
