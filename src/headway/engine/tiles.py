"""Register tiles, the inner loops of the matrix products, written in LLVM IR through Numba. They use 256-bit vectors,
which LLVM splits or joins for other targets.

A tile multiplies a few rows of a weight matrix with a few tokens, so that count loaded vector is used unrolled times.
Weights are float32, float16, bfloat16, or int8 with one scale per group; for int8, tokens are quantised to int16, and
pairs of products are accumulated exactly in int32 (one instruction per pair). Every tile takes addresses and sizes, all
int64:

    (weights, row stride, tokens, token stride, steps, groups, scales, scale stride, token scales, out, out stride,
     ahead, pace)

with strides in bytes, and writes float32 dot products out[token, row]; for int8, times the scale of the token. A tile
of several float rows prefetches what is `ahead` bytes further, `pace` bytes for each 64 of its own that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from headway.engine.llvm import (
    CACHE_LINE,
    F16,
    F32,
    I8,
    I16,
    I32,
    LANES,
    PREFETCH_BYTES,
    Builder,
    Value,
    broadcast,
    const_i64,
    converts_halves,
    fma,
    intrinsic,
    load,
    loop,
    prefetch,
    reduce_add,
    reduce_add_8,
    shuffle,
    store,
    vector,
)

STEP = 16  # products in one step of an int8 tile
SIGNATURE = types.void(*[types.int64] * 13)


def float32_at(builder: Builder, address: Value) -> Value:
    return load(builder, address, vector(F32, LANES))


def bfloat16_at(builder: Builder, address: Value) -> Value:
    """A bfloat16 is the upper half of a float32."""
    upper = builder.zext(load(builder, address, vector(I16, LANES)), vector(I32, LANES))
    shift = ir.Constant(vector(I32, LANES), [16] * LANES)
    return builder.bitcast(builder.shl(upper, shift), vector(F32, LANES))


def float16_at(builder: Builder, address: Value) -> Value:
    return builder.fpext(load(builder, address, vector(F16, LANES)), vector(F32, LANES))


def as_intrinsic(generate: Callable[[Any, Builder, Any, Any], Value]) -> Any:
    """A tile that compiled code can call, from the function that generates its LLVM IR."""

    @intrinsic
    def tile(
        context: Any, w: Any, w_stride: Any, x: Any, x_stride: Any, steps: Any, groups: Any, scale: Any, s_stride: Any,
        token_scales: Any, out: Any, out_stride: Any, ahead: Any, pace: Any
    ) -> Any:  # fmt: skip
        return SIGNATURE, generate

    return tile


def float_tile(read: Callable[[Builder, Value], Value], *, size: int, rows: int, tokens: int, unroll: int) -> Any:
    """A step is 8 products; groups and scales are ignored."""

    def generate(context: Any, builder: Builder, signature: Any, args: Any) -> Value:
        w, w_stride, x, x_stride, steps, _, _, _, _, out, out_stride, ahead, pace = args
        weights = [builder.add(w, builder.mul(w_stride, const_i64(row))) for row in range(rows)]
        inputs = [builder.add(x, builder.mul(x_stride, const_i64(token))) for token in range(tokens)]

        def product(at: Value, sums: Sequence[Value]) -> list[Value]:
            here = builder.mul(at, const_i64(LANES * size))
            left = [read(builder, builder.add(weight, here)) for weight in weights]
            here = builder.mul(at, const_i64(LANES * 4))
            right = [float32_at(builder, builder.add(token, here)) for token in inputs]
            pairs = [(a, b) for b in right for a in left]
            return [fma(builder, a, b, s) for (a, b), s in zip(pairs, sums, strict=True)]

        def unrolled(iteration: Value, sums: Sequence[Value]) -> list[Value]:
            first = builder.mul(iteration, const_i64(unroll))
            if rows == 1:
                prefetch_lines(builder, weights, first, LANES * size, unroll, const_i64(PREFETCH_BYTES))
            elif LANES * size * unroll >= CACHE_LINE:
                for weight in weights:
                    prefetch(builder, builder.add(builder.add(weight, ahead), builder.mul(iteration, pace)))
            sets = [sums[i : i + count] for i in range(0, len(sums), count)]
            for i in range(unroll):
                sets[i % len(sets)] = product(builder.add(first, const_i64(i)), sets[i % len(sets)])
            return [value for selected in sets for value in selected]

        count = rows * tokens
        chains = min(unroll, max(1, LANES // count))  # accumulators per sum, to hide the latency of fma
        zeros = [ir.Constant(vector(F32, LANES), [0.0] * LANES)] * (count * chains)
        iterations = builder.sdiv(steps, const_i64(unroll))
        sums = loop(builder, iterations, zeros, unrolled)
        folded = sums[:count]
        for i in range(count, len(sums), count):
            folded = [builder.fadd(a, b, flags=("fast",)) for a, b in zip(folded, sums[i : i + count], strict=True)]
        done = builder.mul(iterations, const_i64(unroll))
        rest = builder.sub(steps, done)
        folded = loop(builder, rest, folded, lambda iteration, sums: product(builder.add(done, iteration), sums))
        write(builder, folded, rows, out, out_stride)
        return context.get_dummy_value()

    return as_intrinsic(generate)


def int8_tile(*, rows: int, tokens: int, unroll: int, group_steps: int = 0) -> Any:
    """A step is 16 products; `steps` counts those of one group. With `group_steps`, the number is constant: the
    group is unrolled, and rows are processed one after the other so that all accumulators fit in registers."""

    def generate(context: Any, builder: Builder, signature: Any, args: Any) -> Value:
        w, w_stride, x, x_stride, steps, groups, scale, s_stride, token_scales, out, out_stride, _, _ = args
        weights = [builder.add(w, builder.mul(w_stride, const_i64(row))) for row in range(rows)]
        inputs = [builder.add(x, builder.mul(x_stride, const_i64(token))) for token in range(tokens)]
        scales = [builder.add(scale, builder.mul(s_stride, const_i64(row))) for row in range(rows)]
        zero_i32 = ir.Constant(vector(I32, LANES), [0] * LANES)
        zero = ir.Constant(vector(F32, LANES), [0.0] * LANES)

        def product(at: Value, selected: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
            here, there = builder.mul(at, const_i64(STEP)), builder.mul(at, const_i64(2 * STEP))
            left = [
                builder.sext(load(builder, builder.add(weight, here), vector(I8, STEP)), vector(I16, STEP))
                for weight in selected
            ]
            right = [load(builder, builder.add(token, there), vector(I16, STEP)) for token in inputs]
            pairs = [(a, b) for b in right for a in left]
            return [builder.add(s, pair_products(builder, a, b)) for (a, b), s in zip(pairs, sums, strict=True)]

        def unrolled(first: Value, selected: Sequence[Value], sums: Sequence[Value], count: int) -> Sequence[Value]:
            if unroll > 1:
                prefetch_lines(builder, selected, first, STEP, count, const_i64(PREFETCH_BYTES))
            for i in range(count):
                sums = product(builder.add(first, const_i64(i)), selected, sums)
            return sums

        def group_sums(begin: Value, selected: Sequence[Value], sums: Sequence[Value]) -> Sequence[Value]:
            """The int32 sums of one group."""
            if group_steps:
                return unrolled(begin, selected, sums, group_steps)

            def body(iteration: Value, sums: Sequence[Value]) -> Sequence[Value]:
                return unrolled(builder.add(begin, builder.mul(iteration, const_i64(unroll))), selected, sums, unroll)

            iterations = builder.sdiv(steps, const_i64(unroll))
            sums = loop(builder, iterations, sums, body)
            done = builder.mul(iterations, const_i64(unroll))
            at, rest = builder.add(begin, done), builder.sub(steps, done)
            return loop(
                builder, rest, sums, lambda iteration, sums: product(builder.add(at, iteration), selected, sums)
            )

        def row_sums(selected: Sequence[Value], by: Sequence[Value]) -> list[Value]:
            """The float32 sums of these rows over all groups, token-major."""

            def group(number: Value, sums: Sequence[Value]) -> list[Value]:
                begin = builder.mul(number, const_i64(group_steps) if group_steps else steps)
                inner = group_sums(begin, selected, [zero_i32] * len(sums))
                here = builder.mul(number, const_i64(4))
                each = [broadcast(builder, load(builder, builder.add(s, here), F32)) for s in by] * tokens
                floats = [builder.sitofp(value, vector(F32, LANES)) for value in inner]
                return [fma(builder, a, b, s) for a, b, s in zip(floats, each, sums, strict=True)]

            return loop(builder, groups, [zero] * (len(selected) * tokens), group)

        if group_steps:
            by_row = [row_sums([weight], [s]) for weight, s in zip(weights, scales, strict=True)]
            sums = [row[token] for token in range(tokens) for row in by_row]
        else:
            sums = row_sums(weights, scales)
        loaded = [load(builder, builder.add(token_scales, const_i64(4 * token)), F32) for token in range(tokens)]
        write(builder, sums, rows, out, out_stride, loaded)
        return context.get_dummy_value()

    return as_intrinsic(generate)


def prefetch_lines(
    builder: Builder, rows: Sequence[Value], first: Value, step: int, steps: int, distance: Value
) -> None:
    """Prefetches what is read later: `distance` bytes ahead."""
    if step * steps >= CACHE_LINE:
        for row in rows:
            here = builder.add(builder.add(row, distance), builder.mul(first, const_i64(step)))
            for line in range(0, step * steps, CACHE_LINE):
                prefetch(builder, builder.add(here, const_i64(line)))


def pair_products(builder: Builder, a: Value, b: Value) -> Value:
    """a[2i] · b[2i] + a[2i + 1] · b[2i + 1]: 16 int16 → 8 int32 (pmaddwd)."""
    wide = vector(I32, STEP)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    even, odd = (
        builder.shuffle_vector(
            products,
            ir.Constant(wide, ir.Undefined),
            ir.Constant(vector(I32, LANES), list(range(start, STEP, 2))),
        )
        for start in (0, 1)
    )
    return builder.add(even, odd)


def write(
    builder: Builder,
    sums: Sequence[Value],
    rows: int,
    out: Value,
    out_stride: Value,
    token_scales: Sequence[Value] = (),
) -> None:
    """Reduces one vector per sum, token-major, and stores the results."""
    tokens = len(sums) // rows
    addresses = [builder.add(out, builder.mul(out_stride, const_i64(token))) for token in range(tokens)]
    if len(sums) < LANES:
        for i, value in enumerate(sums):
            number = reduce_add(builder, value)
            if token_scales:
                number = builder.fmul(number, token_scales[i // rows])
            store(builder, number, builder.add(addresses[i // rows], const_i64(4 * (i % rows))))
        return
    zeros = [ir.Constant(vector(F32, LANES), [0.0] * LANES)] * (2 * LANES - len(sums))
    first, second = reduce_add_8(builder, sums[:LANES]), reduce_add_8(builder, [*sums[LANES:], *zeros])
    for token, address in enumerate(addresses):
        selected = shuffle(builder, first, second, range(token * rows, (token + 1) * rows))
        if token_scales:
            selected = builder.fmul(selected, broadcast(builder, token_scales[token], rows))
        store(builder, selected, address)


class TileSet(NamedTuple):
    """The tiles of one weight format, as (rows, tokens)."""

    single: Any  # (1, 1)
    gemv: Any  # (gemv_rows, 1)
    single_row: Any  # (1, 4)
    streamed: Any  # (streamed_rows, 4), for rows read from memory
    cached: Any  # (cached_rows, 4), for rows that are in the cache
    gemv_rows: int
    streamed_rows: int
    cached_rows: int


def tile_set(
    make: Callable[..., Any], *, step: int, gemv_rows: int, streamed_rows: int, cached_rows: int, **options: Any
) -> TileSet:
    """`step`: bytes of weights that a step reads. The numbers of rows were measured to be the fastest. float32: four
    rows for one token, without prefetch; floats: three rows for four tokens, whose accumulators fill the registers;
    int8: one row from memory, two from the cache."""
    single = make(rows=1, tokens=1, unroll=4, **options)
    return TileSet(
        single=single,
        gemv=single if gemv_rows == 1 else make(rows=gemv_rows, tokens=1, unroll=1, **options),
        single_row=make(rows=1, tokens=4, unroll=CACHE_LINE // step, **options),
        streamed=make(rows=streamed_rows, tokens=4, unroll=CACHE_LINE // step, **options),
        cached=make(rows=cached_rows, tokens=4, unroll=1, **options),
        gemv_rows=gemv_rows,
        streamed_rows=streamed_rows,
        cached_rows=cached_rows,
    )


FLOAT32 = tile_set(float_tile, step=4 * LANES, gemv_rows=4, streamed_rows=3, cached_rows=3, read=float32_at, size=4)
# Of the shape of FLOAT32, so that sums are in the same order and results are the same bits.
FLOAT16 = tile_set(float_tile, step=4 * LANES, gemv_rows=4, streamed_rows=3, cached_rows=3, read=float16_at, size=2)
FLOAT16 = FLOAT16 if converts_halves() else FLOAT32  # then it is not used
BFLOAT16 = tile_set(float_tile, step=2 * LANES, gemv_rows=1, streamed_rows=3, cached_rows=3, read=bfloat16_at, size=2)
INT8 = tile_set(int8_tile, step=STEP, gemv_rows=1, streamed_rows=1, cached_rows=2)
INT8_GROUP64 = tile_set(int8_tile, step=STEP, gemv_rows=1, streamed_rows=1, cached_rows=2, group_steps=64 // STEP)
KEYS = FLOAT32.gemv  # four keys times one query
