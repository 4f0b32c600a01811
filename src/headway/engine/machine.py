"""Room: engine. A whole step of a model as one compiled call: a small machine whose program is a table of orders.

Every thread runs every order and does its share of it; where an order's result is needed whole, they wait for each
other. Small work (a norm) every thread does for itself, which is cheaper than to wait. An order is a row of numbers
(see `Order`); what changes from step to step is in the frame (see `Frame`) and in the table of the cache.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numba import float32, int64, void

from headway.engine.attending import attend
from headway.engine.kernels import (
    INT8,
    NO_NORM,
    NONE,
    activate,
    add,
    fast,
    multiply,
    normalise,
    rotate,
    shorten,
    table_row,
    times,
    total,
)
from headway.engine.scalars import FAST, floats, njit, wait_for_all, whole_numbers


class Does(IntEnum):
    EMBED = 0
    NORM = 1
    LINEAR = 2
    GATE = 3  # multiplies what LINEAR wrote with what another wrote
    ATTEND = 4


class Order(IntEnum):
    """The columns of an order."""

    DOES = 0
    SOURCE = 1  # places
    TARGET = 2
    WEIGHT = 3  # addresses; 0 = there is none
    SCALE = 4
    BIAS = 5
    STORED = 6  # how the matrix is stored
    INPUTS = 7
    OUTPUTS = 8
    GROUPS = 9
    ROW = 10  # numbers between tokens in the target
    COLUMN = 11  # where in a token's row it begins
    RESIDUAL = 12  # the place of the stream so far, to which the result is added; -1 = nothing
    ACTIVATION = 13
    WAIT = 14  # afterwards, for all
    CHOSEN = 15  # only for the tokens whose logits are asked for
    NORM = 16
    NORM_WEIGHT = 17
    NORM_BIAS = 18
    KEY_WEIGHT = 19  # of the keys' norm
    KEY_BIAS = 20
    HEADS = 21
    KV_HEADS = 22
    SIZE = 23  # of a head
    TURNED = 24  # half of how many of its numbers are rotated
    WINDOW = 25  # 0 = none
    LAYER = 26
    CROSS = 27  # looks at the source


class Frame(IntEnum):
    BATCH = 0
    TOKENS = 1  # of each sequence
    PAST = 2
    IDS = 3  # addresses, 0 = there is none
    POSITIONS = 4
    MASK = 5
    MASK_ROW = 6
    COS = 7
    SIN = 8
    POSITION_TABLE = 9
    DISTANCE = 10  # (head, distance): what is added to scores
    DISTANCE_ROW = 11
    SOURCE_MASK = 12
    SOURCE_MASK_ROW = 13
    SOURCE = 14  # length of the source
    LAST = 15  # logits of each sequence's last token only
    MEETING = 16  # where threads wait
    THREADS = 17


class Place(IntEnum):
    """Buffers. The first are shared; from OWN on each thread has its own."""

    STREAM = 0
    PROJECTED = 1
    MIXED = 2
    HIDDEN = 3
    GATED = 4
    BRANCH = 5
    OUT = 6
    SHORT = 7
    FACTORS = 8
    OWN = 9
    NORMED = 9
    OWN_SHORT = 10
    OWN_FACTORS = 11
    SCORES = 12
    SCRATCH = 13


class Slot(IntEnum):
    """The columns of the cache's table, a row a layer."""

    KEYS = 0
    VALUES = 1
    ROOM = 2
    SOURCE_KEYS = 3
    SOURCE_VALUES = 4
    SOURCE_ROOM = 5


ORDER, FRAME, PLACES, SLOTS = len(Order), len(Frame), len(Place.__members__), len(Slot)
MEETING = 24  # int64s where threads wait: two lines of the cache, wherever they begin
LINE = 16  # floats in a line of the cache: two threads do not write to one
FEW = 4  # tokens that every thread rounds for itself


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
    count, inputs, row = tokens_of(order, frame), order[Order.INPUTS], order[Order.ROW]
    begin, end = share(order[Order.OUTPUTS], thread, frame[Frame.THREADS], LINE)
    source, factors = places[thread, order[Order.SOURCE]], np.int64(0)
    if order[Order.STORED] == INT8:
        source, factors = rounded_tokens(thread, order, frame, places)
    target = places[thread, order[Order.TARGET]] + 4 * order[Order.COLUMN]
    stored, weight, scale, groups = order[Order.STORED], order[Order.WEIGHT], order[Order.SCALE], order[Order.GROUPS]
    scratch = places[thread, Place.SCRATCH]
    multiply(stored, weight, scale, groups, inputs, begin, end, source, count, target, row, scratch)
    for token in range(count):
        at = target + 4 * (token * row + begin)
        if factors:
            values, factor = floats(at, end - begin), floats(factors, count)[token]
            for i in range(end - begin):
                values[i] *= factor
        if order[Order.BIAS]:
            add(at, order[Order.BIAS] + 4 * begin, end - begin)
        if order[Order.ACTIVATION] != NONE:
            activate(order[Order.ACTIVATION], at, end - begin)
        if order[Order.RESIDUAL] >= 0:
            here = 4 * (token * row + begin)
            before = places[thread, order[Order.RESIDUAL]] + here
            total(at, before, end - begin, places[thread, Place.STREAM] + here)


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
                normalise(NO_NORM, key, size, 0, 0, eps, np.float32(1), keys + 4 * (past + t) * size)
                value = key + 4 * kv_heads * size
                normalise(NO_NORM, value, size, 0, 0, eps, np.float32(1), values + 4 * (past + t) * size)
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


@njit(
    [void(int64, int64[:, ::1], float32[:, ::1], int64[::1], int64[:, ::1], int64[:, ::1])],
    fastmath=FAST,
    error_model="numpy",
    boundscheck=False,
    nogil=True,
    cache=True,
)
def run(thread: int, program: Any, numbers: Any, frame: Any, cache: Any, places: Any) -> None:
    """`numbers` has two for each order: a norm's eps, and a factor (of embeddings, of a norm's result, of scores)."""
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
