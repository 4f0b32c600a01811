"""A whole step of a model as one compiled call: a small machine whose program is a table of orders.

Every thread runs every order and does its share of it; where an order's result is needed whole, they wait for each
other. Small work (a norm) every thread does for itself, which is cheaper than to wait. An order is a row of numbers;
what changes from step to step is in the frame and in the table of the cache. `orders` has the columns of them all.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import cfunc, int64, void

from headway.engine import attention_kernel, kernels, llvm, opcodes, scalars, tiles
from headway.engine.attention_kernel import attend
from headway.engine.kernels import (
    BFLOAT16,
    INT8,
    NO_NORM,
    NONE,
    activate,
    add,
    copy,
    fast,
    multiply_bfloat16,
    multiply_float32,
    multiply_int8,
    multiply_int8_by_64,
    normalise,
    rotate,
    shorten,
    table_row,
    times,
    total,
)
from headway.engine.opcodes import FEW, FRAME, JOB, LINE, ORDER, PLACES, SLOTS, Does, Frame, Order, Place, Slot
from headway.engine.scalars import add_one, floats, wait_for_all, whole_numbers


@fast
def share(count: int, thread: int, threads: int, step: int) -> tuple[int, int]:
    """From where to where: this thread's part of `count` things, in whole `step`s."""
    each = (count + threads * step - 1) // (threads * step) * step
    return min(count, thread * each), min(count, (thread + 1) * each)


@fast
def tokens_of(order: Any, frame: Any) -> int:
    if order[Order.CHOSEN] and frame[Frame.LAST]:
        return frame[Frame.BATCH]
    return frame[Frame.BATCH] * frame[Frame.TOKENS]


@fast
def embed(thread: int, order: Any, eps: Any, factor: Any, frame: Any, places: Any) -> None:
    count, width = tokens_of(order, frame), order[Order.OUTPUTS]
    ids, positions = whole_numbers(frame[Frame.IDS], count), whole_numbers(frame[Frame.POSITIONS], count)
    begin, end = share(count, thread, frame[Frame.THREADS], 1)
    for token in range(begin, end):
        out = places[thread, order[Order.TARGET]] + 4 * token * width
        stored, weight, scale = order[Order.STORED], order[Order.WEIGHT], order[Order.SCALE]
        table_row(stored, weight, scale, order[Order.GROUPS], width, ids[token], factor, out)
        if frame[Frame.POSITION_TABLE]:
            add(out, frame[Frame.POSITION_TABLE] + 4 * positions[token] * width, width)
        if order[Order.NORM] != NO_NORM:
            weight, bias = order[Order.NORM_WEIGHT], order[Order.NORM_BIAS]
            normalise(order[Order.NORM], out, width, weight, bias, eps, np.float32(1), out)


@fast
def norm(thread: int, order: Any, eps: Any, factor: Any, frame: Any, places: Any) -> None:
    width, count, each = order[Order.OUTPUTS], tokens_of(order, frame), frame[Frame.TOKENS]
    for token in range(count):
        taken = (token + 1) * each - 1 if order[Order.CHOSEN] and frame[Frame.LAST] else token
        source = places[thread, order[Order.SOURCE]] + 4 * taken * width
        target = places[thread, order[Order.TARGET]] + 4 * token * width
        weight, bias = order[Order.NORM_WEIGHT], order[Order.NORM_BIAS]
        normalise(order[Order.NORM], source, width, weight, bias, eps, factor, target)


@fast
def rounded_tokens(thread: int, order: Any, frame: Any, places: Any) -> tuple[int, int]:
    """(tokens, factors): addresses of the source rounded to 16 bits."""
    count, inputs, groups = tokens_of(order, frame), order[Order.INPUTS], order[Order.GROUPS]
    alone = count < FEW
    short = places[thread, Place.OWN_SHORT if alone else Place.SHORT]
    factors = places[thread, Place.OWN_FACTORS if alone else Place.FACTORS]
    begin, end = (0, count) if alone else share(count, thread, frame[Frame.THREADS], 1)
    kept, source = floats(factors, count), places[thread, order[Order.SOURCE]]
    for token in range(begin, end):
        kept[token] = shorten(source + 4 * token * inputs, inputs, groups, short + 2 * token * inputs)
    if not alone:
        wait_for_all(frame[Frame.MEETING], frame[Frame.THREADS])
    return short, factors


@fast
def linear(thread: int, order: Any, frame: Any, places: Any) -> None:
    count, row, groups = tokens_of(order, frame), order[Order.ROW], order[Order.GROUPS]
    begin, end = share(order[Order.OUTPUTS], thread, frame[Frame.THREADS], LINE)
    source, target = places[thread, order[Order.SOURCE]], places[thread, order[Order.TARGET]] + 4 * order[Order.COLUMN]
    weight, scale, inputs = order[Order.WEIGHT], order[Order.SCALE], order[Order.INPUTS]
    if order[Order.STORED] == INT8:
        short, factors = rounded_tokens(thread, order, frame, places)
        if inputs == 64 * groups:
            multiply_int8_by_64(weight, scale, groups, inputs, begin, end, short, factors, count, target, 4 * row)
        else:
            multiply_int8(weight, scale, groups, inputs, begin, end, short, factors, count, target, 4 * row)
    elif order[Order.STORED] == BFLOAT16:
        multiply_bfloat16(weight, scale, groups, inputs, begin, end, source, scale, count, target, 4 * row)
    else:
        multiply_float32(weight, scale, groups, inputs, begin, end, source, scale, count, target, 4 * row)
    for token in range(count):
        here = 4 * (token * row + begin)
        if order[Order.BIAS]:
            add(target + here, order[Order.BIAS] + 4 * begin, end - begin)
        if order[Order.ACTIVATION] != NONE:
            activate(order[Order.ACTIVATION], target + here, end - begin)
        if order[Order.RESIDUAL] >= 0:
            before = places[thread, order[Order.RESIDUAL]] + here
            total(target + here, before, end - begin, places[thread, Place.STREAM] + here)


@fast
def gate(thread: int, order: Any, frame: Any, places: Any) -> None:
    """Of the same outputs that this thread has just written."""
    begin, end = share(order[Order.OUTPUTS], thread, frame[Frame.THREADS], LINE)
    for token in range(tokens_of(order, frame)):
        here = 4 * (token * order[Order.OUTPUTS] + begin)
        times(places[thread, order[Order.TARGET]] + here, places[thread, order[Order.SOURCE]] + here, end - begin)


@fast
def prepared(order: Any, frame: Any, at: int, position: int, weight: int, bias: int, eps: Any) -> None:
    """A head's query or key, in place: its norm, then its rotation."""
    if order[Order.NORM] != NO_NORM:
        normalise(order[Order.NORM], at, order[Order.SIZE], weight, bias, eps, np.float32(1), at)
    if order[Order.TURNED]:
        there = 4 * position * order[Order.TURNED]
        rotate(at, order[Order.TURNED], frame[Frame.COS] + there, frame[Frame.SIN] + there)


@fast
def attention(thread: int, order: Any, eps: Any, scale: Any, frame: Any, cache: Any, places: Any) -> None:
    """PROJECTED holds a token's queries, then its keys and its values. A thread has whole heads of keys, with the
    queries that read them."""
    heads, kv_heads, size = order[Order.HEADS], order[Order.KV_HEADS], order[Order.SIZE]
    tokens, past, cross = frame[Frame.TOKENS], frame[Frame.PAST], order[Order.CROSS]
    row, slot = 4 * order[Order.ROW], cache[order[Order.LAYER]]
    positions = whole_numbers(frame[Frame.POSITIONS], frame[Frame.BATCH] * tokens)
    begin, end = share(frame[Frame.BATCH] * kv_heads, thread, frame[Frame.THREADS], 1)
    for item in range(begin, end):
        sequence, kv_head = item // kv_heads, item % kv_heads
        room = slot[Slot.SOURCE_ROOM] if cross else slot[Slot.ROOM]
        keys = (slot[Slot.SOURCE_KEYS] if cross else slot[Slot.KEYS]) + 4 * item * room * size
        values = (slot[Slot.SOURCE_VALUES] if cross else slot[Slot.VALUES]) + 4 * item * room * size
        mask = frame[Frame.MASK] + sequence * frame[Frame.MASK_ROW] if frame[Frame.MASK] else np.int64(0)
        if cross:
            mask = frame[Frame.SOURCE_MASK]
            mask = mask + sequence * frame[Frame.SOURCE_MASK_ROW] if mask else np.int64(0)
        else:
            for t in range(tokens):
                token = sequence * tokens + t
                key = places[thread, Place.PROJECTED] + token * row + 4 * (heads + kv_head) * size
                weight, bias = order[Order.KEY_WEIGHT], order[Order.KEY_BIAS]
                prepared(order, frame, key, positions[token], weight, bias, eps)
                copy(key, size, keys + 4 * (past + t) * size)
                copy(key + 4 * kv_heads * size, size, values + 4 * (past + t) * size)
        for t in range(tokens):
            token = sequence * tokens + t
            last = frame[Frame.SOURCE] if cross else past + t + 1
            first = max(0, last - order[Order.WINDOW]) if order[Order.WINDOW] else 0
            for head in range(kv_head * (heads // kv_heads), (kv_head + 1) * (heads // kv_heads)):
                query = places[thread, Place.PROJECTED] + token * row + 4 * head * size
                weight, bias = order[Order.NORM_WEIGHT], order[Order.NORM_BIAS]
                prepared(order, frame, query, positions[token], weight, bias, eps)
                extra = np.int64(0)
                if frame[Frame.DISTANCE] and not cross:
                    extra = frame[Frame.DISTANCE] + 4 * head * frame[Frame.DISTANCE_ROW]
                out = places[thread, order[Order.TARGET]] + 4 * (token * heads + head) * size
                scores = places[thread, Place.SCORES]
                attend(query, keys, values, size, first, last, mask, extra, scale, scores, out)


@fast
def run(thread: int, program: Any, numbers: Any, frame: Any, cache: Any, places: Any) -> None:
    """`numbers` has two for each order: a norm's eps, and a factor of embeddings, scores, or a norm's result."""
    for i in range(len(program)):
        order, eps, factor = program[i], numbers[i, 0], numbers[i, 1]
        does = order[Order.DOES]
        if does == Does.LINEAR:
            linear(thread, order, frame, places)
        elif does == Does.ATTEND:
            attention(thread, order, eps, factor, frame, cache, places)
        elif does == Does.NORM:
            norm(thread, order, eps, factor, frame, places)
        elif does == Does.GATE:
            gate(thread, order, frame, places)
        else:
            embed(thread, order, eps, factor, frame, places)
        if order[Order.WAIT]:
            wait_for_all(frame[Frame.MEETING], frame[Frame.THREADS])
    wait_for_all(frame[Frame.MEETING], frame[Frame.THREADS])


def _entrance(version: int) -> Any:
    """What every thread calls with a job's address. `version` stands for all the code that is compiled into it: Numba's
    own memory of what it has compiled goes by this file and by what is closed over in it."""

    @cfunc(void(int64), cache=True)
    def enter(job: int) -> None:
        if version < 0:
            return
        tables = whole_numbers(job, JOB)
        orders = tables[2]
        program, numbers = whole_numbers(tables[1], orders * ORDER), floats(tables[3], orders * 2)
        frame, layers, threads = whole_numbers(tables[5], FRAME), tables[8], tables[10]
        cache, places = whole_numbers(tables[7], layers * SLOTS), whole_numbers(tables[9], threads * PLACES)
        run(
            add_one(job),
            program.reshape(orders, ORDER),
            numbers.reshape(orders, 2),
            frame,
            cache.reshape(layers, SLOTS),
            places.reshape(threads, PLACES),
        )

    return enter


SOURCES = (attention_kernel, kernels, llvm, opcodes, scalars, tiles)
enter = _entrance(sum(zlib.crc32(Path(str(part.__file__)).read_bytes()) for part in SOURCES))
