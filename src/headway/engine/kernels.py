"""What a step of a model is made of, compiled: matrix times tokens, norm, activation, rotation.

All of it works on addresses, so that a model's own memory is used where it lies. A thread does the part of the outputs
it is given; nothing here waits for another.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.engine import tiles
from headway.engine.llvm import WIDE
from headway.engine.scalars import FAST, HALF, ONE, bytes_at, exp, float_of_bits, floats, njit, round_to_shorts, shorts
from headway.engine.tiles import STEP

FLOAT32, BFLOAT16, INT8 = 0, 1, 2  # how a matrix is stored
BLOCK = 128 * 1024  # bytes of weights that many tokens share before the next are read
ROWS = 12  # a block has a multiple of them: tiles take one to four
NO_NORM, LAYER_NORM, RMS_NORM = 0, 1, 2
ACTIVATIONS = ("none", "relu", "relu2", "gelu", "gelu_tanh", "quick_gelu", "silu", "tanh")
NONE, RELU, RELU2, GELU, GELU_TANH, QUICK_GELU, SILU, TANH = range(len(ACTIVATIONS))
SHORT = 32767

fast = njit(fastmath=FAST, error_model="numpy", boundscheck=False)


# ---------------------------------------------------------------------------------------- matrix times tokens


@fast
def _rest_float32(w: int, x: int, begin: int, end: int, scale: int, factor: int) -> Any:
    left, right, total = floats(w, end), floats(x, end), np.float32(0)
    for i in range(begin, end):
        total += left[i] * right[i]
    return total


@fast
def _rest_bfloat16(w: int, x: int, begin: int, end: int, scale: int, factor: int) -> Any:
    left, right, total = shorts(w, end), floats(x, end), np.float32(0)
    for i in range(begin, end):
        total += float_of_bits(np.int32(left[i]) << np.int32(16)) * right[i]
    return total


@fast
def _rest_int8(w: int, x: int, begin: int, end: int, scale: int, factor: int) -> Any:
    left, right, total = bytes_at(w, end), shorts(x, end), np.int64(0)
    for i in range(begin, end):
        total += np.int64(left[i]) * np.int64(right[i])
    return np.float32(total) * floats(scale, 1)[0] * floats(factor, 1)[0]


def _multiply(family: Any, rest: Any, *, w_size: int, x_size: int, step: int) -> Any:
    """y[token, row] for the rows from `begin` to `end`; `y_row` bytes lie between the tokens of y. For int8, x holds
    the tokens rounded to 16 bits, and `factors` what gives them their size back. A block of rows comes from memory for
    the first tokens, and is near for the others."""
    one, ones, four, few, near, ones_rows, few_rows, near_rows = family

    @fast
    def multiply(
        w: int, scale: int, groups: int, inputs: int, begin: int, end: int, x: int, factors: int, tokens: int, y: int,
        y_row: int
    ) -> None:  # fmt: skip
        w_row, x_row, s_row, steps = inputs * w_size, inputs * x_size, groups * 4, inputs // groups // step
        whole, together = steps * groups * step, tokens // 4 * 4
        soon = 8 if 8 <= tokens < 16 else min(4, together)  # so few wait for the memory: the next rows come meanwhile
        block = max(ROWS, BLOCK // w_row // ROWS * ROWS)
        for first in range(begin, end, block):
            last = min(end, first + block)
            several = first + (last - first) // few_rows * few_rows
            for row in range(first, several, few_rows):
                at, scales = w + row * w_row, scale + row * s_row
                for token in range(0, soon, 4):
                    here, known, out = x + token * x_row, factors + 4 * token, y + token * y_row
                    few(at, w_row, here, x_row, steps, groups, scales, s_row, known, out + 4 * row, y_row)
            for row in range(several, last):
                at, scales = w + row * w_row, scale + row * s_row
                for token in range(0, soon, 4):
                    here, known, out = x + token * x_row, factors + 4 * token, y + token * y_row
                    four(at, w_row, here, x_row, steps, groups, scales, s_row, known, out + 4 * row, y_row)
            several = first + (last - first) // near_rows * near_rows
            for token in range(soon, together, 4):
                here, known, out = x + token * x_row, factors + 4 * token, y + token * y_row
                for row in range(first, several, near_rows):
                    at, scales = w + row * w_row, scale + row * s_row
                    near(at, w_row, here, x_row, steps, groups, scales, s_row, known, out + 4 * row, y_row)
                for row in range(several, last):
                    at, scales = w + row * w_row, scale + row * s_row
                    four(at, w_row, here, x_row, steps, groups, scales, s_row, known, out + 4 * row, y_row)
            several = first + (last - first) // ones_rows * ones_rows
            for token in range(together, tokens):
                here, known, out = x + token * x_row, factors + 4 * token, y + token * y_row
                for row in range(first, several, ones_rows):
                    at, scales = w + row * w_row, scale + row * s_row
                    ones(at, w_row, here, x_row, steps, groups, scales, s_row, known, out + 4 * row, y_row)
                for row in range(several, last):
                    at, scales = w + row * w_row, scale + row * s_row
                    one(at, w_row, here, x_row, steps, groups, scales, s_row, known, out + 4 * row, y_row)
        if whole < inputs:
            for token in range(tokens):
                for row in range(begin, end):
                    out = floats(y + token * y_row + 4 * row, 1)
                    here, known = x + token * x_row, factors + 4 * token
                    out[0] += rest(w + row * w_row, here, whole, inputs, scale + row * s_row, known)

    return multiply


multiply_float32 = _multiply(tiles.FLOAT32, _rest_float32, w_size=4, x_size=4, step=WIDE)
multiply_bfloat16 = _multiply(tiles.BFLOAT16, _rest_bfloat16, w_size=2, x_size=4, step=WIDE)
multiply_int8 = _multiply(tiles.INT8, _rest_int8, w_size=1, x_size=2, step=STEP)
multiply_int8_by_64 = _multiply(tiles.INT8_BY_64, _rest_int8, w_size=1, x_size=2, step=STEP)


@fast
def shorten(x: int, count: int, groups: int, out: int) -> Any:
    """Rounds a token to 16 bits; returns what its products are to be multiplied with. The largest number is kept so
    small that a group's sum fits 32 bits."""
    values = floats(x, count)
    largest = np.float32(0)
    for i in range(count):
        largest = max(largest, abs(values[i]))
    most = np.float32(min(SHORT, (2**31 - 1) // (127 * (count // groups // 8 + 2))))
    factor = most / largest if largest > 0 else np.float32(0)
    steps = count // WIDE
    round_to_shorts(x, steps, factor, out)
    short = shorts(out, count)
    for i in range(steps * WIDE, count):
        short[i] = np.int16(round(values[i] * factor))
    return largest / most


@fast
def table_row(kind: int, table: int, scale: int, groups: int, width: int, row: int, factor: Any, out: int) -> None:
    """out = table[row] · factor"""
    target = floats(out, width)
    if kind == INT8:
        codes, scales = bytes_at(table + row * width, width), floats(scale + 4 * row * groups, groups)
        size = width // groups
        for i in range(width):
            target[i] = np.float32(codes[i]) * scales[i // size] * factor
    elif kind == BFLOAT16:
        halves = shorts(table + 2 * row * width, width)
        for i in range(width):
            target[i] = float_of_bits(np.int32(halves[i]) << np.int32(16)) * factor
    else:
        values = floats(table + 4 * row * width, width)
        for i in range(width):
            target[i] = values[i] * factor


# ---------------------------------------------------------------------------------------- between the matrices


@fast
def normalise(kind: int, x: int, width: int, weight: int, bias: int, eps: Any, factor: Any, out: int) -> None:
    """out may be x. `factor` multiplies the result."""
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
    spread = np.float32(0)
    for i in range(width):
        spread += (source[i] - mean) * (source[i] - mean)
    scale = factor / np.float32(np.sqrt(spread / np.float32(width) + eps))
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
    """Abramowitz & Stegun 7.1.26: right to 1.5e-7."""
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
def add(x: int, y: int, count: int) -> None:
    """x += y"""
    target, source = floats(x, count), floats(y, count)
    for i in range(count):
        target[i] += source[i]


@fast
def total(x: int, y: int, count: int, out: int) -> None:
    """out = x + y; out may be one of them"""
    first, second, target = floats(x, count), floats(y, count), floats(out, count)
    for i in range(count):
        target[i] = first[i] + second[i]


@fast
def times(x: int, y: int, count: int) -> None:
    """x *= y"""
    target, source = floats(x, count), floats(y, count)
    for i in range(count):
        target[i] *= source[i]


@fast
def rotate(x: int, half: int, cos: int, sin: int) -> None:
    """The pair (x[i], x[i + half]) is turned by its angle."""
    values, c, s = floats(x, 2 * half), floats(cos, half), floats(sin, half)
    for i in range(half):
        a, b = values[i], values[half + i]
        values[i] = a * c[i] - b * s[i]
        values[half + i] = b * c[i] + a * s[i]
