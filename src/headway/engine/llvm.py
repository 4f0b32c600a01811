"""Helpers for writing LLVM IR through Numba: loads and stores by address, loops, vector reductions."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from llvmlite import binding, ir
from numba import extending
from numba.core import cgutils, config

intrinsic: Any = extending.intrinsic  # the result has another signature than the decorated function
I8, I16, I32, I64, F32 = (*(ir.IntType(bits) for bits in (8, 16, 32, 64)), ir.FloatType())
F16 = ir.HalfType()
LANES = 8  # float32 lanes of a 256-bit vector
PREFETCH_BYTES = 2048  # distance of the prefetch
CACHE_LINE = 64  # bytes


Builder: TypeAlias = Any  # llvmlite is untyped
Value: TypeAlias = Any


def converts_halves() -> bool:
    """Whether compiled code can convert float16 by an instruction; otherwise LLVM would call a function that the
    process may not have."""
    if platform.machine().lower() in ("aarch64", "arm64"):
        return True
    settings: Any = config  # its values are set when it is imported
    if settings.CPU_FEATURES is not None:
        return "+f16c" in settings.CPU_FEATURES
    return settings.CPU_NAME is None and bool(binding.get_host_cpu_features().get("f16c"))


def vector(kind: Any, count: int) -> Any:
    return ir.VectorType(kind, count)


def const_i64(number: int) -> Value:
    return ir.Constant(I64, number)


def load(builder: Builder, address: Value, kind: Any) -> Value:
    return builder.load(builder.inttoptr(address, kind.as_pointer()), align=1, typ=kind)


def store(builder: Builder, value: Value, address: Value) -> None:
    builder.store(value, builder.inttoptr(address, value.type.as_pointer()), align=1)


def call_intrinsic(builder: Builder, name: str, out: Any, args: Sequence[Value], **options: Any) -> Value:
    """Calls an LLVM intrinsic."""
    kind = ir.FunctionType(out, [arg.type for arg in args])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, name), args, **options)


def loop(
    builder: Builder, count: Value, initial: Sequence[Value], body: Callable[[Value, Sequence[Value]], Sequence[Value]]
) -> list[Value]:
    """A loop of `count` iterations of body(index, values) → values; returns the final values."""
    before = builder.block
    inside, after = builder.append_basic_block("loop"), builder.append_basic_block("after")
    builder.cbranch(builder.icmp_signed(">", count, const_i64(0)), inside, after)
    builder.position_at_end(inside)
    index, values = builder.phi(I64), [builder.phi(value.type) for value in initial]
    results = [builder.add(index, const_i64(1)), *body(index, values)]
    end = builder.block
    for phi, first, later in zip([index, *values], [const_i64(0), *initial], results, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, end)
    builder.cbranch(builder.icmp_signed("<", results[0], count), inside, after)
    builder.position_at_end(after)
    last = []
    for first, later in zip(initial, results[1:], strict=True):
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
    return call_intrinsic(builder, f"llvm.fma.v{LANES}f32", a.type, [a, b, c])


def reduce_add(builder: Builder, value: Value) -> Value:
    """The sum of a vector of floats, in any order."""
    zero = ir.Constant(F32, 0.0)
    return call_intrinsic(builder, f"llvm.vector.reduce.fadd.v{LANES}f32", F32, [zero, value], fastmath=("fast",))


def broadcast(builder: Builder, number: Value, count: int = LANES) -> Value:
    kind = vector(number.type, count)
    one = builder.insert_element(ir.Constant(kind, ir.Undefined), number, ir.Constant(I32, 0))
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), ir.Constant(vector(I32, count), [0] * count))


def shuffle(builder: Builder, a: Value, b: Value, order: Sequence[int]) -> Value:
    return builder.shuffle_vector(a, b, ir.Constant(vector(I32, len(order)), list(order)))


def reduce_add_8(builder: Builder, sums: Sequence[Value]) -> Value:
    """The sums of eight vectors as one vector, by pairwise horizontal additions."""

    def fold(a: Value, b: Value, left: Sequence[int], right: Sequence[int]) -> Value:
        return builder.fadd(shuffle(builder, a, b, left), shuffle(builder, a, b, right), flags=("fast",))

    a, b, c, d, e, f, g, h = sums
    even, odd = (0, 8, 2, 10, 4, 12, 6, 14), (1, 9, 3, 11, 5, 13, 7, 15)
    twos = [fold(x, y, even, odd) for x, y in ((a, b), (c, d), (e, f), (g, h))]
    low, high = (0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)
    fours = [fold(x, y, low, high) for x, y in ((twos[0], twos[1]), (twos[2], twos[3]))]
    return fold(fours[0], fours[1], (0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15))
