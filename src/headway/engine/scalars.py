"""Small things that compiled code needs and Numba does not give: numbers at an address, bits as a float,
rounding and exponentials that vectorise, and a place where threads wait for each other."""

from __future__ import annotations

import os
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types

from headway.engine.llvm import F32, I32, I64, WIDE, broadcast, called, intrinsic, load, repeat, store, vector, whole

njit: Any = numba.njit  # compiled code takes numpy's numbers where Python's are named

FAST = {"reassoc", "contract", "nsz", "arcp", "afn"}  # not "nnan", "ninf": what is masked scores -inf

LOG2E, LN2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
LOWEST, HIGHEST = np.float32(-87.0), np.float32(88.0)
ONE, HALF = np.float32(1), np.float32(0.5)
TAYLOR = tuple(np.float32(1 / n) for n in (720, 120, 24, 6, 2, 1, 1))
SPINS = 4000  # looks at the others before the processor is offered to them


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
def whole_numbers(address: int, count: int) -> Any:
    return carray(_int64_pointer(address), (count,))


@njit
def bytes_at(address: int, count: int) -> Any:
    return carray(_int8_pointer(address), (count,))


@njit
def shorts(address: int, count: int) -> Any:
    return carray(_int16_pointer(address), (count,))


@intrinsic
def rounded(context: Any, number: Any) -> Any:
    """To the nearest whole number, as a float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return called(builder, "llvm.rint.f32", F32, args)

    return types.float32(types.float32), generate


@intrinsic
def float_of_bits(context: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], F32)

    return types.float32(types.int32), generate


@njit(fastmath=FAST)
def exp(x: Any) -> Any:
    """2ⁿ · eʳ with |r| ≤ ln 2 / 2, and eʳ by its first terms: right to a float32's last bits."""
    x = min(max(x, LOWEST), HIGHEST)
    n = rounded(x * LOG2E)
    r = x - n * LN2
    power = TAYLOR[0]
    for term in TAYLOR[1:]:
        power = power * r + term
    return power * float_of_bits(np.int32((np.int32(n) + np.int32(127)) << np.int32(23)))


@intrinsic
def round_to_shorts(context: Any, source: Any, steps: Any, factor: Any, target: Any) -> Any:
    """target[i] (int16) = source[i] · factor, rounded, for 8 · steps numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source, steps, factor, target = args
        wide = vector(F32, WIDE)
        factors = broadcast(builder, factor)

        def eight(turn: Any, values: Any) -> list[Any]:
            number = builder.fmul(load(builder, builder.add(source, builder.mul(turn, whole(32))), wide), factors)
            near = called(builder, f"llvm.rint.v{WIDE}f32", wide, [number])
            short = builder.trunc(builder.fptosi(near, vector(I32, WIDE)), vector(ir.IntType(16), WIDE))
            store(builder, short, builder.add(target, builder.mul(turn, whole(16))))
            return []

        repeat(builder, steps, [], eight)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.float32, types.int64), generate


# ---------------------------------------------------------------------------------------- threads


@intrinsic
def add_one(context: Any, address: Any) -> Any:
    """Adds 1 to the number there as one act, and returns what it was."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", builder.inttoptr(args[0], I64.as_pointer()), whole(1), "seq_cst")

    return types.int64(types.int64), generate


@intrinsic
def _look(context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(builder.inttoptr(args[0], I64.as_pointer()), "acquire", 8, typ=I64)

    return types.int64(types.int64), generate


@intrinsic
def _say(context: Any, address: Any, number: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], builder.inttoptr(args[0], I64.as_pointer()), "release", 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


if os.name == "posix":
    _sched_yield = types.ExternalFunction("sched_yield", types.int32())

    @njit
    def give_way() -> None:
        _sched_yield()
else:

    @njit
    def give_way() -> None:
        pass


@njit
def wait_for_all(meeting: int, threads: int) -> None:
    """Returns when `threads` threads have called it. At `meeting` are two numbers, 64 bytes apart: how many have come,
    and how often all have."""
    if threads == 1:
        return
    times = _look(meeting + 64)
    if add_one(meeting) == threads - 1:
        _say(meeting, 0)
        _say(meeting + 64, times + 1)
        return
    spins = 0
    while _look(meeting + 64) == times:
        spins += 1
        if spins > SPINS:
            give_way()
