"""Primitives that compiled code needs and Numba lacks: arrays at an address, bit casts, rounding and exp that
vectorise, and a thread barrier."""

from __future__ import annotations

import os
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types

from headway.engine.llvm import (
    F32,
    I32,
    I64,
    LANES,
    broadcast,
    call_intrinsic,
    const_i64,
    intrinsic,
    load,
    loop,
    store,
    vector,
)

njit: Any = numba.njit  # untyped: compiled functions take numpy scalars

FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}  # without "nnan", "ninf": masked scores are -inf

LOG2E, LN2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)
ONE, HALF = np.float32(1), np.float32(0.5)
TAYLOR = tuple(np.float32(1 / n) for n in (720, 120, 24, 6, 2, 1, 1))
SPINS = 4000  # iterations before a waiting thread yields the core


def _pointer_to(kind: Any) -> Any:
    @intrinsic
    def pointer(context: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(types.CPointer(kind)))

        return types.CPointer(kind)(types.int64), generate

    return pointer


_float_pointer, _int64_pointer = _pointer_to(types.float32), _pointer_to(types.int64)
_int8_pointer, _int16_pointer = _pointer_to(types.int8), _pointer_to(types.int16)


@njit
def floats(address: int, count: int) -> Any:
    return carray(_float_pointer(address), (count,))


@njit
def int64s(address: int, count: int) -> Any:
    return carray(_int64_pointer(address), (count,))


@njit
def int8s(address: int, count: int) -> Any:
    return carray(_int8_pointer(address), (count,))


@njit
def int16s(address: int, count: int) -> Any:
    return carray(_int16_pointer(address), (count,))


@intrinsic
def rint(context: Any, number: Any) -> Any:
    """The nearest integer, as a float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return call_intrinsic(builder, "llvm.rint.f32", F32, args)

    return types.float32(types.float32), generate


@intrinsic
def bits_to_float(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], F32)

    return types.float32(types.int32), generate


@njit(fastmath=FAST)
def exp(x: Any) -> Any:
    """2ⁿ · eʳ with |r| ≤ ln 2 / 2, and eʳ by its Taylor polynomial: exact to the last bits of a float32."""
    x = min(max(x, LOWEST), HIGHEST)
    n = rint(x * LOG2E)
    r = x - n * LN2
    power = TAYLOR[0]
    for term in TAYLOR[1:]:
        power = power * r + term
    return power * bits_to_float(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@intrinsic
def round_to_int16(context: Any, source: Any, steps: Any, factor: Any, target: Any) -> Any:
    """target[i] (int16) = round(source[i] · factor), for 8 · steps values."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, steps, factor, target = args
        wide = vector(F32, LANES)
        factors = broadcast(builder, factor)

        def eight(index: Any, values: Any) -> list[Any]:
            number = builder.fmul(load(builder, builder.add(source, builder.mul(index, const_i64(32))), wide), factors)
            near = call_intrinsic(builder, f"llvm.rint.v{LANES}f32", wide, [number])
            short = builder.trunc(builder.fptosi(near, vector(I32, LANES)), vector(ir.IntType(16), LANES))
            store(builder, short, builder.add(target, builder.mul(index, const_i64(16))))
            return []

        loop(builder, steps, [], eight)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64), generate


# ---------------------------------------------------------------------------------------- threads


@intrinsic
def fetch_add(context: Any, address: Any) -> Any:
    """Atomically adds 1 to the int64 at an address; returns the old value."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], I64.as_pointer()), const_i64(1), "seq_cst")

    return types.int64(types.int64), generate


@intrinsic
def _load_acquire(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], I64.as_pointer()), "acquire", 8, typ=I64)

    return types.int64(types.int64), generate


@intrinsic
def _store_release(context: Any, address: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], builder.inttoptr(args[0], I64.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


if os.name == "posix":
    _sched_yield = types.ExternalFunction("sched_yield", types.int32())

    @njit
    def yield_thread() -> None:
        _sched_yield()
else:

    @njit
    def yield_thread() -> None:
        pass


@njit
def barrier_wait(barrier: int, threads: int) -> None:
    """Returns when `threads` threads have called it. The barrier is two int64 on different cache lines: the number of
    threads that have arrived, and its generation."""
    if threads == 1:
        return
    generation = _load_acquire(barrier + 64)
    if fetch_add(barrier) == threads - 1:
        _store_release(barrier, 0)
        _store_release(barrier + 64, generation + 1)
        return
    spins = 0
    while _load_acquire(barrier + 64) == generation:
        spins += 1
        if spins > SPINS:
            yield_thread()
