"""Room: engine. The inner loops, in the compiler's own language (LLVM, through Numba): rows of a weight matrix times
tokens, with every vector named. Nothing here is of one processor; 256-bit vectors are split or joined where needed.

A tile multiplies a few rows with a few tokens, so that what is loaded serves more than once. Weights are float32,
bfloat16, or int8 with a scale a group; int8 meets tokens that were rounded to 16 bits, whose products are exact in
32 bits, two to an instruction. Every tile takes addresses and sizes, all int64:

    (weights, bytes a row, tokens, bytes a token, steps, groups, scales, bytes of scales a row, out)

and writes float32 sums, out[row · tokens + token].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # what it makes is called with other arguments than it is written with
I8, I16, I32, I64, F32 = (*(ir.IntType(bits) for bits in (8, 16, 32, 64)), ir.FloatType())
WIDE = 8  # numbers in a vector of float32
STEP = 16  # products in a step of int8
AHEAD = 2048  # bytes between what is read and what is asked of the memory
LINE = 64  # bytes that come together

SIGNATURE = types.void(*[types.int64] * 9)

Builder: TypeAlias = Any  # llvmlite's, which are not typed
Value: TypeAlias = Any


def vector(kind: Any, count: int) -> Any:
    return ir.VectorType(kind, count)


def whole(number: int) -> Value:
    return ir.Constant(I64, number)


def load(builder: Builder, address: Value, kind: Any) -> Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1, typ=kind)


def store(builder: Builder, value: Value, address: Value) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def called(builder: Builder, name: str, out: Any, args: Sequence[Value], **options: Any) -> Value:
    """One of LLVM's own functions."""
    kind = ir.FunctionType(out, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args, **options)


def repeat(
    builder: Builder, count: Value, carried: Sequence[Value], body: Callable[[Value, Sequence[Value]], Sequence[Value]]
) -> list[Value]:
    """`count` turns of body(turn, values) → values; the last values."""
    before = builder.block
    inside, after = builder.append_basic_block("turn"), builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed(">", count, whole(0)), inside, after)
    builder.position_at_end(inside)
    turn, values = builder.phi(I64), [builder.phi(value.type) for value in carried]
    results = [builder.add(turn, whole(1)), *body(turn, values)]
    end = builder.block
    for phi, first, later in zip([turn, *values], [whole(0), *carried], results, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, end)
    builder.cbranch(builder.icmp_signed("<", results[0], count), inside, after)
    builder.position_at_end(after)
    last = []
    for first, later in zip(carried, results[1:], strict=True):
        phi = builder.phi(first.type)
        phi.add_incoming(first, before)
        phi.add_incoming(later, end)
        last.append(phi)
    return last


def prefetch(builder: Builder, address: Value) -> None:
    where = builder.inttoptr(builder.add(address, whole(AHEAD)), I8.as_pointer())
    read, keep, data = (ir.Constant(I32, number) for number in (0, 3, 1))
    kind = ir.FunctionType(ir.VoidType(), [where.type, I32, I32, I32])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), [where, read, keep, data])


def fma(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    return called(builder, f"llvm.fma.v{WIDE}f32", a.type, [a, b, c])


def total(builder: Builder, value: Value) -> Value:
    """The sum of a vector of floats, in any order."""
    zero = ir.Constant(F32, 0.0)
    return called(builder, f"llvm.vector.reduce.fadd.v{WIDE}f32", F32, [zero, value], fastmath=("fast",))


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
        context: Any, w: Any, w_row: Any, x: Any, x_row: Any, steps: Any, groups: Any, scale: Any, s_row: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Builder, signature: Any, args: Any) -> Value:
            w, w_row, x, x_row, steps, _, _, _, out = args
            weights = [builder.add(w, builder.mul(w_row, whole(row))) for row in range(rows)]
            words = [builder.add(x, builder.mul(x_row, whole(token))) for token in range(tokens)]

            def product(at: Value, sums: Sequence[Value]) -> list[Value]:
                here = builder.mul(at, whole(WIDE * size))
                left = [read(builder, builder.add(weight, here)) for weight in weights]
                here = builder.mul(at, whole(WIDE * 4))
                right = [float32_at(builder, builder.add(word, here)) for word in words]
                pairs = [(a, b) for a in left for b in right]
                return [fma(builder, a, b, s) for (a, b), s in zip(pairs, sums, strict=True)]

            def several(turn: Value, sums: Sequence[Value]) -> list[Value]:
                first = builder.mul(turn, whole(unroll))
                fetch_lines(builder, weights, first, WIDE * size, unroll)
                done: list[Value] = []
                for i in range(unroll):
                    some = sums[i * rows * tokens : (i + 1) * rows * tokens]
                    done += product(builder.add(first, whole(i)), some)
                return done

            zeros = [ir.Constant(vector(F32, WIDE), [0.0] * WIDE)] * (rows * tokens * unroll)
            turns = builder.sdiv(steps, whole(unroll))
            sums = repeat(builder, turns, zeros, several)
            every = rows * tokens
            folded = sums[:every]
            for i in range(1, unroll):
                later = sums[i * every : (i + 1) * every]
                folded = [builder.fadd(a, b, flags=("fast",)) for a, b in zip(folded, later, strict=True)]
            done = builder.mul(turns, whole(unroll))
            rest = builder.sub(steps, done)
            folded = repeat(builder, rest, folded, lambda turn, sums: product(builder.add(done, turn), sums))
            write(builder, folded, out)
            return context.get_dummy_value()

        return SIGNATURE, generate

    return tile


def int8_tile(*, rows: int, tokens: int, unroll: int) -> Any:
    """Steps are of 16 numbers, and counted within a group."""

    @intrinsic
    def tile(
        context: Any, w: Any, w_row: Any, x: Any, x_row: Any, steps: Any, groups: Any, scale: Any, s_row: Any, out: Any
    ) -> Any:
        def generate(context: Any, builder: Builder, signature: Any, args: Any) -> Value:
            w, w_row, x, x_row, steps, groups, scale, s_row, out = args
            weights = [builder.add(w, builder.mul(w_row, whole(row))) for row in range(rows)]
            words = [builder.add(x, builder.mul(x_row, whole(token))) for token in range(tokens)]
            scales = [builder.add(scale, builder.mul(s_row, whole(row))) for row in range(rows)]

            def product(at: Value, sums: Sequence[Value]) -> list[Value]:
                here, there = builder.mul(at, whole(STEP)), builder.mul(at, whole(2 * STEP))
                left = [
                    builder.sext(load(builder, builder.add(weight, here), vector(I8, STEP)), vector(I16, STEP))
                    for weight in weights
                ]
                right = [load(builder, builder.add(word, there), vector(I16, STEP)) for word in words]
                pairs = [(a, b) for a in left for b in right]
                return [builder.add(s, pair_products(builder, a, b)) for (a, b), s in zip(pairs, sums, strict=True)]

            def group(number: Value, sums: Sequence[Value]) -> list[Value]:
                begin = builder.mul(number, steps)

                def several(turn: Value, inner: Sequence[Value]) -> Sequence[Value]:
                    first = builder.add(begin, builder.mul(turn, whole(unroll)))
                    fetch_lines(builder, weights, first, STEP, unroll)
                    for i in range(unroll):
                        inner = product(builder.add(first, whole(i)), inner)
                    return inner

                zeros = [ir.Constant(vector(I32, WIDE), [0] * WIDE)] * (rows * tokens)
                turns = builder.sdiv(steps, whole(unroll))
                inner = repeat(builder, turns, zeros, several)
                done = builder.mul(turns, whole(unroll))
                at = builder.add(begin, done)
                rest = builder.sub(steps, done)
                inner = repeat(builder, rest, inner, lambda turn, values: product(builder.add(at, turn), values))
                factors = [
                    broadcast(builder, load(builder, builder.add(s, builder.mul(number, whole(4))), F32))
                    for s in scales
                    for _ in range(tokens)
                ]
                floats = [builder.sitofp(value, vector(F32, WIDE)) for value in inner]
                return [fma(builder, a, b, s) for a, b, s in zip(floats, factors, sums, strict=True)]

            zeros = [ir.Constant(vector(F32, WIDE), [0.0] * WIDE)] * (rows * tokens)
            write(builder, repeat(builder, groups, zeros, group), out)
            return context.get_dummy_value()

        return SIGNATURE, generate

    return tile


def fetch_lines(builder: Builder, rows: Sequence[Value], first: Value, step: int, steps: int) -> None:
    """Asks for the memory that the next turns will read, where the rows are read one at a time."""
    if len(rows) == 1:
        here = builder.add(rows[0], builder.mul(first, whole(step)))
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


def broadcast(builder: Builder, number: Value) -> Value:
    kind = vector(number.type, WIDE)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(vector(I32, WIDE), [0] * WIDE))


def write(builder: Builder, sums: Sequence[Value], out: Value) -> None:
    for place, value in enumerate(sums):
        store(builder, total(builder, value), builder.add(out, whole(4 * place)))


def tiles(make: Callable[..., Any], **options: Any) -> tuple[Any, Any, Any, Any]:
    """For one token, two, four; and for four with two rows at once."""
    return (
        make(rows=1, tokens=1, unroll=4, **options),
        make(rows=1, tokens=2, unroll=2, **options),
        make(rows=1, tokens=4, unroll=2, **options),
        make(rows=2, tokens=4, unroll=1, **options),
    )


FLOAT32 = tiles(float_tile, read=float32_at, size=4)
BFLOAT16 = tiles(float_tile, read=bfloat16_at, size=2)
INT8 = tiles(int8_tile)
KEYS = float_tile(float32_at, size=4, rows=4, tokens=1, unroll=1)  # four keys meet one query
