"""A compiled interpreter: runs the program of a whole decoding step in one call.

Every thread executes every instruction and computes its part of the output; a barrier follows where the next
instruction reads all of it. Small operations (a norm) are computed redundantly by every thread, which is cheaper than a
barrier. An instruction is a row of int64; values that change from step to step are in the frame and in the cache table.
`opcodes` defines the columns of all tables.
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
    FLOAT16,
    INT8,
    NO_NORM,
    NONE,
    activate,
    add,
    add_inplace,
    copy,
    embedding_row,
    fast,
    matmul_bfloat16,
    matmul_float16,
    matmul_float32,
    matmul_int8,
    matmul_int8_group64,
    multiply_inplace,
    normalise,
    quantise_token,
    rotate,
)
from headway.engine.opcodes import (
    BUFFERS,
    CACHE_FIELDS,
    FIELDS,
    FRAME_SIZE,
    JOB_SIZE,
    LINE_FLOATS,
    PRIVATE_TOKENS,
    Buffer,
    CacheField,
    Field,
    Frame,
    Op,
)
from headway.engine.scalars import barrier_wait, fetch_add, floats, int64s


@fast
def partition(count: int, thread: int, threads: int, step: int) -> tuple[int, int]:
    """[begin, end) of this thread's part of `count` items, in multiples of `step`."""
    size = (count + threads * step - 1) // (threads * step) * step
    return min(count, thread * size), min(count, (thread + 1) * size)


@fast
def tokens_of(inst: Any, frame: Any) -> int:
    if inst[Field.LOGIT_TOKENS] and frame[Frame.LAST_ONLY]:
        return frame[Frame.BATCH]
    return frame[Frame.BATCH] * frame[Frame.NEW_TOKENS]


@fast
def embed(thread: int, inst: Any, eps: Any, factor: Any, frame: Any, buffers: Any) -> None:
    count, width = tokens_of(inst, frame), inst[Field.OUT_FEATURES]
    ids, positions = int64s(frame[Frame.TOKEN_IDS], count), int64s(frame[Frame.POSITIONS], count)
    begin, end = partition(count, thread, frame[Frame.THREADS], 1)
    for token in range(begin, end):
        out = buffers[thread, inst[Field.TARGET]] + 4 * token * width
        kind, weight, scale = inst[Field.FORMAT], inst[Field.WEIGHT], inst[Field.SCALE]
        embedding_row(kind, weight, scale, inst[Field.GROUPS], width, ids[token], factor, out)
        if frame[Frame.POSITION_TABLE]:
            add_inplace(out, frame[Frame.POSITION_TABLE] + 4 * positions[token] * width, width)
        if inst[Field.NORM_KIND] != NO_NORM:
            weight, bias = inst[Field.NORM_WEIGHT], inst[Field.NORM_BIAS]
            normalise(inst[Field.NORM_KIND], out, width, weight, bias, eps, np.float32(1), out)


@fast
def norm(thread: int, inst: Any, eps: Any, factor: Any, frame: Any, buffers: Any) -> None:
    width, count, new = inst[Field.OUT_FEATURES], tokens_of(inst, frame), frame[Frame.NEW_TOKENS]
    for token in range(count):
        row = (token + 1) * new - 1 if inst[Field.LOGIT_TOKENS] and frame[Frame.LAST_ONLY] else token
        source = buffers[thread, inst[Field.SOURCE]] + 4 * row * width
        target = buffers[thread, inst[Field.TARGET]] + 4 * token * width
        weight, bias = inst[Field.NORM_WEIGHT], inst[Field.NORM_BIAS]
        normalise(inst[Field.NORM_KIND], source, width, weight, bias, eps, factor, target)


@fast
def quantised_tokens(thread: int, inst: Any, frame: Any, buffers: Any) -> tuple[int, int]:
    """Quantises the source to int16; returns the addresses of (tokens, their scales)."""
    count, inputs, groups = tokens_of(inst, frame), inst[Field.IN_FEATURES], inst[Field.GROUPS]
    private = count < PRIVATE_TOKENS
    int16 = buffers[thread, Buffer.THREAD_INT16_TOKENS if private else Buffer.INT16_TOKENS]
    scales = buffers[thread, Buffer.THREAD_TOKEN_SCALES if private else Buffer.TOKEN_SCALES]
    begin, end = (0, count) if private else partition(count, thread, frame[Frame.THREADS], 1)
    token_scales, source = floats(scales, count), buffers[thread, inst[Field.SOURCE]]
    for token in range(begin, end):
        token_scales[token] = quantise_token(source + 4 * token * inputs, inputs, groups, int16 + 2 * token * inputs)
    if not private:
        barrier_wait(frame[Frame.BARRIER], frame[Frame.THREADS])
    return int16, scales


@fast
def linear(thread: int, inst: Any, frame: Any, buffers: Any) -> None:
    count, row, groups = tokens_of(inst, frame), inst[Field.ROW_STRIDE], inst[Field.GROUPS]
    begin, end = partition(inst[Field.OUT_FEATURES], thread, frame[Frame.THREADS], LINE_FLOATS)
    source = buffers[thread, inst[Field.SOURCE]]
    target = buffers[thread, inst[Field.TARGET]] + 4 * inst[Field.COLUMN_OFFSET]
    weight, scale, inputs = (
        inst[Field.WEIGHT],
        inst[Field.SCALE],
        inst[Field.IN_FEATURES],
    )
    if inst[Field.FORMAT] == INT8:
        int16, token_scales = quantised_tokens(thread, inst, frame, buffers)
        if inputs == 64 * groups:
            matmul_int8_group64(weight, scale, groups, inputs, begin, end, int16, token_scales, count, target, 4 * row)
        else:
            matmul_int8(weight, scale, groups, inputs, begin, end, int16, token_scales, count, target, 4 * row)
    elif inst[Field.FORMAT] == BFLOAT16:
        matmul_bfloat16(weight, scale, groups, inputs, begin, end, source, scale, count, target, 4 * row)
    elif inst[Field.FORMAT] == FLOAT16:
        matmul_float16(weight, scale, groups, inputs, begin, end, source, scale, count, target, 4 * row)
    else:
        matmul_float32(weight, scale, groups, inputs, begin, end, source, scale, count, target, 4 * row)
    for token in range(count):
        here = 4 * (token * row + begin)
        if inst[Field.BIAS]:
            add_inplace(target + here, inst[Field.BIAS] + 4 * begin, end - begin)
        if inst[Field.ACTIVATION] != NONE:
            activate(inst[Field.ACTIVATION], target + here, end - begin)
        if inst[Field.RESIDUAL] >= 0:
            before = buffers[thread, inst[Field.RESIDUAL]] + here
            add(target + here, before, end - begin, buffers[thread, Buffer.RESIDUAL] + here)


@fast
def gate(thread: int, inst: Any, frame: Any, buffers: Any) -> None:
    """Multiplies the outputs that this thread has just written; needs no barrier before it."""
    begin, end = partition(inst[Field.OUT_FEATURES], thread, frame[Frame.THREADS], LINE_FLOATS)
    for token in range(tokens_of(inst, frame)):
        here = 4 * (token * inst[Field.OUT_FEATURES] + begin)
        source, target = buffers[thread, inst[Field.SOURCE]], buffers[thread, inst[Field.TARGET]]
        multiply_inplace(target + here, source + here, end - begin)


@fast
def norm_and_rotate(inst: Any, frame: Any, at: int, position: int, weight: int, bias: int, eps: Any) -> None:
    """Normalises and rotates the query or key of one head in place."""
    if inst[Field.NORM_KIND] != NO_NORM:
        normalise(inst[Field.NORM_KIND], at, inst[Field.HEAD_SIZE], weight, bias, eps, np.float32(1), at)
    if inst[Field.ROTARY_PAIRS]:
        there = 4 * position * inst[Field.ROTARY_PAIRS]
        rotate(at, inst[Field.ROTARY_PAIRS], frame[Frame.COS] + there, frame[Frame.SIN] + there)


@fast
def attention(thread: int, inst: Any, eps: Any, scale: Any, frame: Any, cache: Any, buffers: Any) -> None:
    """The QKV buffer holds a token's queries, then its keys and values. A thread computes whole key/value heads, with
    the query heads of their group."""
    heads, kv_heads, size = (
        inst[Field.HEADS],
        inst[Field.KV_HEADS],
        inst[Field.HEAD_SIZE],
    )
    tokens, cross = frame[Frame.NEW_TOKENS], inst[Field.CROSS]
    past_lengths = int64s(frame[Frame.PAST_LENGTHS], frame[Frame.BATCH])
    stride, layer = 4 * inst[Field.ROW_STRIDE], cache[inst[Field.LAYER]]
    positions = int64s(frame[Frame.POSITIONS], frame[Frame.BATCH] * tokens)
    begin, end = partition(frame[Frame.BATCH] * kv_heads, thread, frame[Frame.THREADS], 1)
    for item in range(begin, end):
        row, kv_head = item // kv_heads, item % kv_heads
        past = past_lengths[row]
        capacity = layer[CacheField.MEMORY_CAPACITY] if cross else layer[CacheField.CAPACITY]
        keys = (layer[CacheField.MEMORY_KEYS] if cross else layer[CacheField.KEYS]) + 4 * item * capacity * size
        values = (layer[CacheField.MEMORY_VALUES] if cross else layer[CacheField.VALUES]) + 4 * item * capacity * size
        mask = np.int64(0)
        if cross and frame[Frame.MEMORY_MASK]:
            mask = frame[Frame.MEMORY_MASK] + row * frame[Frame.MEMORY_MASK_STRIDE]
        if not cross:
            for t in range(tokens):
                token = row * tokens + t
                key = buffers[thread, Buffer.QKV] + token * stride + 4 * (heads + kv_head) * size
                weight, bias = inst[Field.KEY_NORM_WEIGHT], inst[Field.KEY_NORM_BIAS]
                norm_and_rotate(inst, frame, key, positions[token], weight, bias, eps)
                copy(key, size, keys + 4 * (past + t) * size)
                copy(key + 4 * kv_heads * size, size, values + 4 * (past + t) * size)
        for t in range(tokens):
            token = row * tokens + t
            last = frame[Frame.MEMORY_LENGTH] if cross else past + t + 1
            first = max(0, last - inst[Field.WINDOW]) if inst[Field.WINDOW] else 0
            for head in range(kv_head * (heads // kv_heads), (kv_head + 1) * (heads // kv_heads)):
                query = buffers[thread, Buffer.QKV] + token * stride + 4 * head * size
                weight, bias = inst[Field.NORM_WEIGHT], inst[Field.NORM_BIAS]
                norm_and_rotate(inst, frame, query, positions[token], weight, bias, eps)
                score_bias = np.int64(0)
                if frame[Frame.SCORE_BIAS] and not cross:
                    score_bias = frame[Frame.SCORE_BIAS] + 4 * head * frame[Frame.SCORE_BIAS_STRIDE]
                out = buffers[thread, inst[Field.TARGET]] + 4 * (token * heads + head) * size
                scores = buffers[thread, Buffer.SCORES]
                attend(query, keys, values, size, first, last, mask, score_bias, scale, scores, out)


@fast
def run(thread: int, program: Any, constants: Any, frame: Any, cache: Any, buffers: Any) -> None:
    """`constants` (instructions, 2): the eps of a norm, and a factor of the embeddings, scores or norm output."""
    for i in range(len(program)):
        inst, eps, factor = program[i], constants[i, 0], constants[i, 1]
        op = inst[Field.OP]
        if op == Op.LINEAR:
            linear(thread, inst, frame, buffers)
        elif op == Op.ATTEND:
            attention(thread, inst, eps, factor, frame, cache, buffers)
        elif op == Op.NORM:
            norm(thread, inst, eps, factor, frame, buffers)
        elif op == Op.GATE:
            gate(thread, inst, frame, buffers)
        else:
            embed(thread, inst, eps, factor, frame, buffers)
        if inst[Field.BARRIER]:
            barrier_wait(frame[Frame.BARRIER], frame[Frame.THREADS])
    barrier_wait(frame[Frame.BARRIER], frame[Frame.THREADS])


def _compile_entry_point(version: int) -> Any:
    """The function that every thread calls with the address of a job. `version` is a checksum of all source files that
    are compiled into it: Numba's cache on disk is keyed by this file and by closure variables only."""

    @cfunc(void(int64), cache=True)
    def entry_point(job: int) -> None:
        if version < 0:
            return
        tables = int64s(job, JOB_SIZE)
        count = tables[2]
        program, constants = int64s(tables[1], count * FIELDS), floats(tables[3], count * 2)
        frame, layers, threads = int64s(tables[5], FRAME_SIZE), tables[8], tables[10]
        cache, buffers = int64s(tables[7], layers * CACHE_FIELDS), int64s(tables[9], threads * BUFFERS)
        run(
            fetch_add(job),
            program.reshape(count, FIELDS),
            constants.reshape(count, 2),
            frame,
            cache.reshape(layers, CACHE_FIELDS),
            buffers.reshape(threads, BUFFERS),
        )

    return entry_point


SOURCES = (attention_kernel, kernels, llvm, opcodes, scalars, tiles)
entry_point = _compile_entry_point(sum(zlib.crc32(Path(str(part.__file__)).read_bytes()) for part in SOURCES))
