"""The inner loops, in the compiler's own language (LLVM, through Numba): rows of a weight matrix times
tokens, with every vector named. Nothing here is of one processor; 256-bit vectors are split or joined where needed.

A tile multiplies a few rows with a few tokens, so that what is loaded serves more than once. Weights are float32,
bfloat16, or int8 with a scale a group; int8 meets tokens that were rounded to 16 bits, whose products are exact in
32 bits, two to an instruction. Every tile takes addresses and sizes, all int64:

    (weights, bytes a row, tokens, bytes a token, steps, groups, scales, bytes a row, factors, out, bytes a token)

and writes float32 sums, out[token, row], in int8 times the factor of the token.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types

from headway.engine.llvm import (
    AHEAD,
    F32,
    I8,
    I16,
    I32,
    LINE,
    WIDE,
    Builder,
    Value,
    broadcast,
    eight_totals,
    fma,
    intrinsic,
    load,
    prefetch,
    repeat,
    shuffled,
    store,
    total,
    vector,
    whole,
)

STEP = 16  # products in a step of int8
SIGNATURE = types.void(*[types.int64] * 11)


def float32_at(builder: Builder, address: Value) -> Value:
    return load(builder, address, vector(F32, WIDE))


def bfloat16_at(builder: Builder, address: Value) -> Value:
    """The upper half of a float32."""
    upper = builder.zext(load(builder, address, vector(I16, WIDE)), vector(I32, WIDE))
    shift = ir.Constant(vector(I32, WIDE), [16] * WIDE)
    return builder.bitcast(builder.shl(upper, shift), vector(F32, WIDE))


def float_tile(read: Callable[[Builder, Value], Value], *, size: int, rows: int, tokens: int, unroll: int) -> Any:
    """Steps are of 8 numbers; groups and scales are not looked at."""

    @intrinsic
    def tile(
        context: Any, w: Any, w_row: Any, x: Any, x_row: Any, steps: Any, groups: Any, scale: Any, s_row: Any,
        factors: Any, out: Any, out_row: Any
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Builder, signature: Any, args: Any) -> Value:
            w, w_row, x, x_row, steps, _, _, _, _, out, out_row = args
            weights = [builder.add(w, builder.mul(w_row, whole(row))) for row in range(rows)]
            words = [builder.add(x, builder.mul(x_row, whole(token))) for token in range(tokens)]

            def product(at: Value, sums: Sequence[Value]) -> list[Value]:
                here = builder.mul(at, whole(WIDE * size))
                left = [read(builder, builder.add(weight, here)) for weight in weights]
                here = builder.mul(at, whole(WIDE * 4))
                right = [float32_at(builder, builder.add(word, here)) for word in words]
                pairs = [(a, b) for b in right for a in left]
                return [fma(builder, a, b, s) for (a, b), s in zip(pairs, sums, strict=True)]

            def several(turn: Value, sums: Sequence[Value]) -> list[Value]:
                first = builder.mul(turn, whole(unroll))
                fetch_lines(builder, weights, first, WIDE * size, unroll, far)
                sets = [sums[i : i + every] for i in range(0, len(sums), every)]
                for i in range(unroll):
                    sets[i % len(sets)] = product(builder.add(first, whole(i)), sets[i % len(sets)])
                return [value for some in sets for value in some]

            far = whole(AHEAD) if rows == 1 else builder.mul(w_row, whole(rows))
            every = rows * tokens
            alone = min(unroll, max(1, WIDE // every))  # sums of the same that do not wait for each other
            zeros = [ir.Constant(vector(F32, WIDE), [0.0] * WIDE)] * (every * alone)
            turns = builder.sdiv(steps, whole(unroll))
            sums = repeat(builder, turns, zeros, several)
            folded = sums[:every]
            for i in range(every, len(sums), every):
                folded = [builder.fadd(a, b, flags=("fast",)) for a, b in zip(folded, sums[i : i + every], strict=True)]
            done = builder.mul(turns, whole(unroll))
            rest = builder.sub(steps, done)
            folded = repeat(builder, rest, folded, lambda turn, sums: product(builder.add(done, turn), sums))
            write(builder, folded, rows, out, out_row)
            return context.get_dummy_value()

        return SIGNATURE, generate

    return tile


def int8_tile(*, rows: int, tokens: int, unroll: int, known: int = 0) -> Any:
    """Steps are of 16 numbers, and counted within a group. Where a group has few, and it is `known` how many, they are
    taken without a loop, and one row after the other: so the registers hold all sums."""

    @intrinsic
    def tile(
        context: Any, w: Any, w_row: Any, x: Any, x_row: Any, steps: Any, groups: Any, scale: Any, s_row: Any,
        factors: Any, out: Any, out_row: Any
    ) -> Any:  # fmt: skip
        def generate(context: Any, builder: Builder, signature: Any, args: Any) -> Value:
            w, w_row, x, x_row, steps, groups, scale, s_row, factors, out, out_row = args
            weights = [builder.add(w, builder.mul(w_row, whole(row))) for row in range(rows)]
            words = [builder.add(x, builder.mul(x_row, whole(token))) for token in range(tokens)]
            scales = [builder.add(scale, builder.mul(s_row, whole(row))) for row in range(rows)]
            nought, zero = ir.Constant(vector(I32, WIDE), [0] * WIDE), ir.Constant(vector(F32, WIDE), [0.0] * WIDE)

            def product(at: Value, some: Sequence[Value], sums: Sequence[Value]) -> list[Value]:
                here, there = builder.mul(at, whole(STEP)), builder.mul(at, whole(2 * STEP))
                left = [
                    builder.sext(load(builder, builder.add(weight, here), vector(I8, STEP)), vector(I16, STEP))
                    for weight in some
                ]
                right = [load(builder, builder.add(word, there), vector(I16, STEP)) for word in words]
                pairs = [(a, b) for b in right for a in left]
                return [builder.add(s, pair_products(builder, a, b)) for (a, b), s in zip(pairs, sums, strict=True)]

            def several(first: Value, some: Sequence[Value], sums: Sequence[Value], count: int) -> Sequence[Value]:
                if unroll > 1:
                    fetch_lines(builder, some, first, STEP, count, whole(AHEAD))
                for i in range(count):
                    sums = product(builder.add(first, whole(i)), some, sums)
                return sums

            def counted(begin: Value, some: Sequence[Value], sums: Sequence[Value]) -> Sequence[Value]:
                """The sums of a group, in whole numbers."""
                if known:
                    return several(begin, some, sums, known)

                def turned(turn: Value, sums: Sequence[Value]) -> Sequence[Value]:
                    return several(builder.add(begin, builder.mul(turn, whole(unroll))), some, sums, unroll)

                turns = builder.sdiv(steps, whole(unroll))
                sums = repeat(builder, turns, sums, turned)
                done = builder.mul(turns, whole(unroll))
                at, rest = builder.add(begin, done), builder.sub(steps, done)
                return repeat(builder, rest, sums, lambda turn, sums: product(builder.add(at, turn), some, sums))

            def summed(some: Sequence[Value], by: Sequence[Value]) -> list[Value]:
                """The sums of these rows, over all groups: token by token and within it row by row."""

                def group(number: Value, sums: Sequence[Value]) -> list[Value]:
                    begin = builder.mul(number, whole(known) if known else steps)
                    inner = counted(begin, some, [nought] * len(sums))
                    here = builder.mul(number, whole(4))
                    each = [broadcast(builder, load(builder, builder.add(s, here), F32)) for s in by] * tokens
                    floats = [builder.sitofp(value, vector(F32, WIDE)) for value in inner]
                    return [fma(builder, a, b, s) for a, b, s in zip(floats, each, sums, strict=True)]

                return repeat(builder, groups, [zero] * (len(some) * tokens), group)

            if known:
                by_row = [summed([weight], [s]) for weight, s in zip(weights, scales, strict=True)]
                sums = [row[token] for token in range(tokens) for row in by_row]
            else:
                sums = summed(weights, scales)
            kept = [load(builder, builder.add(factors, whole(4 * token)), F32) for token in range(tokens)]
            write(builder, sums, rows, out, out_row, kept)
            return context.get_dummy_value()

        return SIGNATURE, generate

    return tile


def fetch_lines(builder: Builder, rows: Sequence[Value], first: Value, step: int, steps: int, far: Value) -> None:
    """Asks for the memory that is read later: so many bytes on, or in the next rows."""
    if step * steps >= LINE:
        for row in rows:
            here = builder.add(builder.add(row, far), builder.mul(first, whole(step)))
            for line in range(0, step * steps, LINE):
                prefetch(builder, builder.add(here, whole(line)))


def pair_products(builder: Builder, a: Value, b: Value) -> Value:
    """a[2i] · b[2i] + a[2i + 1] · b[2i + 1], 16 numbers of 16 bits → 8 of 32."""
    wide = vector(I32, STEP)
    products = builder.mul(builder.sext(a, wide), builder.sext(b, wide))
    even, odd = (
        builder.shuffle_vector(
            products,
            ir.Constant(wide, ir.Undefined),
            ir.Constant(vector(I32, WIDE), list(range(start, STEP, 2))),
        )
        for start in (0, 1)
    )
    return builder.add(even, odd)


def write(
    builder: Builder, sums: Sequence[Value], rows: int, out: Value, out_row: Value, factors: Sequence[Value] = ()
) -> None:
    """A vector a sum, token by token and within it row by row."""
    tokens = len(sums) // rows
    places = [builder.add(out, builder.mul(out_row, whole(token))) for token in range(tokens)]
    if len(sums) < WIDE:
        for i, value in enumerate(sums):
            number = total(builder, value)
            if factors:
                number = builder.fmul(number, factors[i // rows])
            store(builder, number, builder.add(places[i // rows], whole(4 * (i % rows))))
        return
    spare = [ir.Constant(vector(F32, WIDE), [0.0] * WIDE)] * (2 * WIDE - len(sums))
    first, second = eight_totals(builder, sums[:WIDE]), eight_totals(builder, [*sums[WIDE:], *spare])
    for token, place in enumerate(places):
        some = shuffled(builder, first, second, range(token * rows, (token + 1) * rows))
        if factors:
            some = builder.fmul(some, broadcast(builder, factors[token], rows))
        store(builder, some, place)


class Family(NamedTuple):
    """The tiles for weights of one kind, (rows, tokens), and how many rows these take."""

    one: Any  # (1, 1)
    ones: Any  # (ones_rows, 1)
    four: Any  # (1, 4)
    few: Any  # (few_rows, 4), for rows that come from memory: the next ones are asked for meanwhile
    near: Any  # (near_rows, 4), for rows that others have met already
    ones_rows: int
    few_rows: int
    near_rows: int


def tiles(make: Callable[..., Any], *, step: int, ones: int, few: int, near: int, **options: Any) -> Family:
    """As many rows at a time as were measured to be fastest. float32: four for one token, without asking ahead; floats:
    three for four tokens, whose sums fill the registers; int8: row by row from memory, and two at a time when near."""
    one = make(rows=1, tokens=1, unroll=4, **options)
    return Family(
        one,
        one if ones == 1 else make(rows=ones, tokens=1, unroll=1, **options),
        make(rows=1, tokens=4, unroll=LINE // step, **options),
        make(rows=few, tokens=4, unroll=LINE // step, **options),
        make(rows=near, tokens=4, unroll=1, **options),
        ones,
        few,
        near,
    )


FLOAT32 = tiles(float_tile, step=4 * WIDE, ones=4, few=3, near=3, read=float32_at, size=4)
BFLOAT16 = tiles(float_tile, step=2 * WIDE, ones=1, few=3, near=3, read=bfloat16_at, size=2)
INT8 = tiles(int8_tile, step=STEP, ones=1, few=1, near=2)
INT8_BY_64 = tiles(int8_tile, step=STEP, ones=1, few=1, near=2, known=64 // STEP)  # in groups of 64
KEYS = FLOAT32.ones  # four keys meet one query
