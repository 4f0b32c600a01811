"""Compiled kernels: matrix products, norms, activations, rotary embedding.

They take addresses, so they work on the model's own memory. A thread computes the range of outputs it is given; no
kernel synchronises threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.engine import tiles
from headway.engine.llvm import CACHE_LINE, LANES
from headway.engine.scalars import FAST, HALF, ONE, bits_to_float, exp, floats, int8s, int16s, njit, round_to_int16
from headway.engine.tiles import STEP

FLOAT32, BFLOAT16, INT8, FLOAT16 = 0, 1, 2, 3  # weight formats
BLOCK_BYTES = 128 * 1024  # weights that stay in L2 cache while all tokens are multiplied with them
SHARED_READ = 48  # tokens, from which on they do not stay in the L2 cache beside the weights
BLOCK_ROWS = 12  # the rows of a block are a multiple: tiles have one to four rows
NO_NORM, LAYER_NORM, RMS_NORM = 0, 1, 2
ACTIVATIONS = ("none", "relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh")
NONE, RELU, RELU2, GELU, GELU_TANH, QUICK_GELU, SILU, TANH = range(len(ACTIVATIONS))
INT16_MAX = 32767

fast = njit(fastmath=FAST, error_model="numpy", boundscheck=False)
inlined = njit(fastmath=FAST, error_model="numpy", boundscheck=False, forceinline=True)


# ---------------------------------------------------------------------------------------- matrix products


@fast
def _tail_float32(w: int, x: int, begin: int, end: int, scale: int, factor: int) -> Any:
    left, right, total = floats(w, end), floats(x, end), np.float32(0)
    for i in range(begin, end):
        total += left[i] * right[i]
    return total


@fast
def _tail_bfloat16(w: int, x: int, begin: int, end: int, scale: int, factor: int) -> Any:
    left, right, total = int16s(w, end), floats(x, end), np.float32(0)
    for i in range(begin, end):
        total += bits_to_float(np.int32(left[i]) << np.int32(16)) * right[i]
    return total


@fast
def _tail_int8(w: int, x: int, begin: int, end: int, scale: int, factor: int) -> Any:
    left, right, total = int8s(w, end), int16s(x, end), np.int64(0)
    for i in range(begin, end):
        total += np.int64(left[i]) * np.int64(right[i])
    return np.float32(total) * floats(scale, 1)[0] * floats(factor, 1)[0]


def _panel(tile: Any, edge: Any, *, rows: int, tokens: int) -> Any:
    """A kernel for the rows [first, last) and the tokens [start, stop), `tokens` at a time: `rows` rows at a time with
    `tile`, the rest one by one with `edge`. While rows are multiplied with all tokens, the next rows are prefetched, an
    equal part for each tile: memory is then read all the time, not only for the first tokens."""

    @inlined
    def panel(
        w: int, w_stride: int, x: int, x_stride: int, steps: int, groups: int, scale: int, s_stride: int, factors: int,
        y: int, y_stride: int, first: int, last: int, start: int, stop: int
    ) -> None:  # fmt: skip
        tiled, passes = first + (last - first) // rows * rows, max(1, (stop - start) // tokens)
        part, pace = w_stride // passes, CACHE_LINE // passes
        for row in range(first, tiled, rows):
            at, scales, ahead = w + row * w_stride, scale + row * s_stride, rows * w_stride
            for t in range(start, stop, tokens):
                here, factor, out = x + t * x_stride, factors + 4 * t, y + t * y_stride + 4 * row
                tile(at, w_stride, here, x_stride, steps, groups, scales, s_stride, factor, out, y_stride, ahead, pace)
                ahead += part
        for row in range(tiled, last):
            at, scales = w + row * w_stride, scale + row * s_stride
            for t in range(start, stop, tokens):
                here, factor, out = x + t * x_stride, factors + 4 * t, y + t * y_stride + 4 * row
                edge(at, w_stride, here, x_stride, steps, groups, scales, s_stride, factor, out, y_stride, 0, 0)

    return panel


def _matmul(tile: tiles.TileSet, tail: Any, *, w_size: int, x_size: int, step: int) -> Any:
    """A kernel that computes y[token, row] for the rows [begin, end). For int8, x holds tokens quantised to int16, and
    `factors` their scales. Rows are processed in blocks: a block is read from memory for the first tokens and is in
    the cache for the others."""
    streamed = _panel(tile.streamed, tile.single_row, rows=tile.streamed_rows, tokens=4)
    cached = _panel(tile.cached, tile.single_row, rows=tile.cached_rows, tokens=4)
    gemv = _panel(tile.gemv, tile.single, rows=tile.gemv_rows, tokens=1)

    @fast
    def matmul(
        w: int, scale: int, groups: int, inputs: int, begin: int, end: int, x: int, factors: int, tokens: int, y: int,
        y_stride: int
    ) -> None:  # fmt: skip
        w_stride, x_stride, s_stride, steps = inputs * w_size, inputs * x_size, groups * 4, inputs // groups // step
        vectorised, fours = steps * groups * step, tokens // 4 * 4
        # tokens for which a row is read from memory: a few share one read, so that their products hide its time
        now = fours if tokens < SHARED_READ else 4
        block = max(BLOCK_ROWS, BLOCK_BYTES // w_stride // BLOCK_ROWS * BLOCK_ROWS)
        for first in range(begin, end, block):
            last = min(end, first + block)
            operands = (w, w_stride, x, x_stride, steps, groups, scale, s_stride, factors, y, y_stride)
            streamed(*operands, first, last, 0, now)
            for t in range(now, fours, 4):
                cached(*operands, first, last, t, t + 4)
            for t in range(fours, tokens):
                gemv(*operands, first, last, t, t + 1)
        if vectorised < inputs:
            for t in range(tokens):
                for row in range(begin, end):
                    out, at, here = floats(y + t * y_stride + 4 * row, 1), w + row * w_stride, x + t * x_stride
                    out[0] += tail(at, here, vectorised, inputs, scale + row * s_stride, factors + 4 * t)

    return matmul


matmul_float32 = _matmul(tiles.FLOAT32, _tail_float32, w_size=4, x_size=4, step=LANES)
# No tail: float16 is for rows of whole vectors.
matmul_float16 = _matmul(tiles.FLOAT16, _tail_float32, w_size=2, x_size=4, step=LANES)
matmul_bfloat16 = _matmul(tiles.BFLOAT16, _tail_bfloat16, w_size=2, x_size=4, step=LANES)
matmul_int8 = _matmul(tiles.INT8, _tail_int8, w_size=1, x_size=2, step=STEP)
matmul_int8_group64 = _matmul(tiles.INT8_GROUP64, _tail_int8, w_size=1, x_size=2, step=STEP)


@fast
def quantise_token(x: int, count: int, groups: int, out: int) -> Any:
    """Quantises a token to int16 and returns its scale. The largest value is small enough that the int32 sum of a group
    cannot overflow."""
    values = floats(x, count)
    largest = np.float32(0)
    for i in range(count):
        largest = max(largest, abs(values[i]))
    limit = np.float32(min(INT16_MAX, (2**31 - 1) // (127 * (count // groups // 8 + 2))))
    factor = limit / largest if largest > 0 else np.float32(0)
    steps = count // LANES
    round_to_int16(x, steps, factor, out)
    rounded = int16s(out, count)
    for i in range(steps * LANES, count):
        rounded[i] = np.int16(round(values[i] * factor))
    return largest / limit


@fast
def embedding_row(kind: int, table: int, scale: int, groups: int, width: int, row: int, factor: Any, out: int) -> None:
    """out = table[row] · factor"""
    target = floats(out, width)
    if kind == INT8:
        codes, scales = int8s(table + row * width, width), floats(scale + 4 * row * groups, groups)
        size = width // groups
        for i in range(width):
            target[i] = np.float32(codes[i]) * scales[i // size] * factor
    elif kind == BFLOAT16:
        bits = int16s(table + 2 * row * width, width)
        for i in range(width):
            target[i] = bits_to_float(np.int32(bits[i]) << np.int32(16)) * factor
    else:
        values = floats(table + 4 * row * width, width)
        for i in range(width):
            target[i] = values[i] * factor


# ---------------------------------------------------------------------------------------- elementwise and norms


@fast
def normalise(kind: int, x: int, width: int, weight: int, bias: int, eps: Any, factor: Any, out: int) -> None:
    """Layer norm or RMS norm, times `factor`. `out` may be `x`."""
    source, target = floats(x, width), floats(out, width)
    if kind == NO_NORM:
        for i in range(width):
            target[i] = source[i] * factor
        return
    mean = np.float32(0)
    if kind == LAYER_NORM:
        for i in range(width):
            mean += source[i]
        mean /= np.float32(width)
    variance = np.float32(0)
    for i in range(width):
        variance += (source[i] - mean) * (source[i] - mean)
    scale = factor / np.float32(np.sqrt(variance / np.float32(width) + eps))
    if weight:
        weights = floats(weight, width)
        for i in range(width):
            target[i] = (source[i] - mean) * scale * weights[i]
    else:
        for i in range(width):
            target[i] = (source[i] - mean) * scale
    if bias:
        shifts = floats(bias, width)
        for i in range(width):
            target[i] += shifts[i] * factor


@fast
def _sigmoid(x: Any) -> Any:
    return ONE / (ONE + exp(-x))


@fast
def _erf(x: Any) -> Any:
    """Abramowitz & Stegun 7.1.26: absolute error below 1.5e-7."""
    t = ONE / (ONE + np.float32(0.3275911) * abs(x))
    terms = np.float32(1.061405429) * t + np.float32(-1.453152027)
    terms = (terms * t + np.float32(1.421413741)) * t + np.float32(-0.284496736)
    size = ONE - (terms * t + np.float32(0.254829592)) * t * exp(-x * x)
    return size if x >= 0 else -size


@fast
def activate(kind: int, x: int, count: int) -> None:
    values = floats(x, count)
    if kind == RELU:
        for i in range(count):
            values[i] = max(values[i], np.float32(0))
    elif kind == RELU2:
        for i in range(count):
            positive = max(values[i], np.float32(0))
            values[i] = positive * positive
    elif kind == SILU:
        for i in range(count):
            values[i] = values[i] * _sigmoid(values[i])
    elif kind == GELU:
        for i in range(count):
            values[i] = HALF * values[i] * (ONE + _erf(values[i] * np.float32(0.7071067811865476)))
    elif kind == GELU_TANH:
        for i in range(count):
            v = values[i]
            values[i] = v * _sigmoid(np.float32(1.5957691216057308) * (v + np.float32(0.044715) * v * v * v))
    elif kind == QUICK_GELU:
        for i in range(count):
            values[i] = values[i] * _sigmoid(np.float32(1.702) * values[i])
    elif kind == TANH:
        for i in range(count):
            values[i] = np.float32(2) * _sigmoid(np.float32(2) * values[i]) - ONE


@fast
def copy(x: int, count: int, out: int) -> None:
    source, target = floats(x, count), floats(out, count)
    for i in range(count):
        target[i] = source[i]


@fast
def add_inplace(x: int, y: int, count: int) -> None:
    """x += y"""
    target, source = floats(x, count), floats(y, count)
    for i in range(count):
        target[i] += source[i]


@fast
def add(x: int, y: int, count: int, out: int) -> None:
    """out = x + y; `out` may be `x` or `y`"""
    first, second, target = floats(x, count), floats(y, count), floats(out, count)
    for i in range(count):
        target[i] = first[i] + second[i]


@fast
def multiply_inplace(x: int, y: int, count: int) -> None:
    """x *= y"""
    target, source = floats(x, count), floats(y, count)
    for i in range(count):
        target[i] *= source[i]


@fast
def rotate(x: int, half: int, cos: int, sin: int) -> None:
    """Rotary embedding in place: rotates each pair (x[i], x[i + half])."""
    values, c, s = floats(x, 2 * half), floats(cos, half), floats(sin, half)
    for i in range(half):
        a, b = values[i], values[half + i]
        values[i] = a * c[i] - b * s[i]
        values[half + i] = b * c[i] + a * s[i]
