"""A stored weight matrix times a batch of tokens, compiled: for encoders and for prefill.

The number of tokens from which torch is faster is measured, not assumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.engine.interpreter import entry_point
from headway.engine.kernels import BFLOAT16, FLOAT32, INT8
from headway.engine.lowering import Program
from headway.engine.opcodes import CACHE_FIELDS, FRAME_SIZE, Buffer, Frame, Op
from headway.engine.thread_pool import thread_pool
from headway.engine.workspace import Workspace

FORMATS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.int8: INT8}
NO_CACHE = np.zeros((1, CACHE_FIELDS), dtype=np.int64)
REPEATS = 5
MARGIN = 1.2  # how much slower we may measure: a matrix product is only part of a step, and timings are noisy
MEMORY_BOUND_TOKENS = 16  # up to here a product is bound by memory bandwidth, whichever kernel runs it


def matmul(x: Tensor, weight: Tensor, scale: Tensor | None = None) -> Tensor:
    """x (…, in) float32 times weight (out, in), transposed → (…, out). `scale` (out, groups) is for int8 weights."""
    outputs, inputs = weight.shape
    flat, pool = x.reshape(-1, inputs).contiguous(), thread_pool()
    out = torch.empty(len(flat), outputs)
    program = Program(max_in_features=inputs)
    program.emit(
        Op.LINEAR,
        source=Buffer.RESIDUAL,
        target=Buffer.OUTPUT,
        format=FORMATS[weight.dtype],
        weight=program.address(weight),
        scale=program.float_address(scale),
        groups=1 if scale is None else scale.shape[1],
        in_features=inputs,
        out_features=outputs,
        row_stride=outputs,
    )
    frame = np.zeros(FRAME_SIZE, dtype=np.int64)
    frame[Frame.BATCH], frame[Frame.NEW_TOKENS] = len(flat), 1
    frame[Frame.BARRIER], frame[Frame.THREADS] = pool.barrier, pool.size
    workspace = Workspace(program, threads=pool.size)
    buffers = workspace.addresses(len(flat), keys=0)
    buffers[:, Buffer.RESIDUAL], buffers[:, Buffer.OUTPUT] = flat.data_ptr(), out.data_ptr()
    pool.run(entry_point.address, *program.tables(), frame, NO_CACHE, buffers)
    return out.view(*x.shape[:-1], outputs)


def max_compiled_tokens(weight: Tensor, *, limit: int) -> int:
    """The number of tokens, at most `limit`, up to which our float32 product is not slower than torch's."""
    rows = limit
    while rows > MEMORY_BOUND_TOKENS:
        x = torch.randn(rows, weight.shape[1])
        if _seconds(partial(matmul, x, weight)) <= MARGIN * _seconds(partial(F.linear, x, weight)):
            break
        rows //= 2
    return rows


def _seconds(function: Callable[[], object]) -> float:
    """The fastest of several runs."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)
