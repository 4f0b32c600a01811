"""A vocabulary for writing LLVM's language by hand, through Numba: loads and stores by address, loops,
sums of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import ir
from numba import extending
from numba.core import cgutils

intrinsic: Any = extending.intrinsic  # what it makes is called with other arguments than it is written with
I8, I16, I32, I64, F32 = (*(ir.IntType(bits) for bits in (8, 16, 32, 64)), ir.FloatType())
WIDE = 8  # numbers in a vector of float32
AHEAD = 2048  # bytes between what is read and what is asked of the memory
LINE = 64  # bytes that come together


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
    where = builder.inttoptr(address, I8.as_pointer())
    read, keep, data = (ir.Constant(I32, number) for number in (0, 3, 1))
    kind = ir.FunctionType(ir.VoidType(), [where.type, I32, I32, I32])
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0"), [where, read, keep, data])


def fma(builder: Builder, a: Value, b: Value, c: Value) -> Value:
    return called(builder, f"llvm.fma.v{WIDE}f32", a.type, [a, b, c])


def total(builder: Builder, value: Value) -> Value:
    """The sum of a vector of floats, in any order."""
    zero = ir.Constant(F32, 0.0)
    return called(builder, f"llvm.vector.reduce.fadd.v{WIDE}f32", F32, [zero, value], fastmath=("fast",))


def broadcast(builder: Builder, number: Value, count: int = WIDE) -> Value:
    kind = vector(number.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(vector(I32, count), [0] * count))


def shuffled(builder: Builder, a: Value, b: Value, order: Sequence[int]) -> Value:
    return builder.shuffle_vector(a, b, ir.Constant(vector(I32, len(order)), list(order)))


def eight_totals(builder: Builder, sums: Sequence[Value]) -> Value:
    """The totals of eight vectors, in order: pairs are added side by side until one vector holds all."""

    def fold(a: Value, b: Value, left: Sequence[int], right: Sequence[int]) -> Value:
        return builder.fadd(shuffled(builder, a, b, left), shuffled(builder, a, b, right), flags=("fast",))

    a, b, c, d, e, f, g, h = sums
    even, odd = (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15)
    twos = [fold(x, y, even, odd) for x, y in ((a, b), (c, d), (e, f), (g, h))]
    low, high = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
    fours = [fold(x, y, low, high) for x, y in ((twos[0], twos[1]), (twos[2], twos[3]))]
    return fold(fours[0], fours[1], (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
