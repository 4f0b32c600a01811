"""One stored matrix times many tokens, compiled: an encoder's layers, and the reading of a prompt. From
how many tokens on torch is faster is found by trying both, not by belief."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from headway.engine.interpreter import enter
from headway.engine.kernels import BFLOAT16, FLOAT32, INT8
from headway.engine.lowering import Plan
from headway.engine.opcodes import FRAME, SLOTS, Does, Frame, Place
from headway.engine.thread_pool import crew
from headway.engine.workspace import Workspace

STORED = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.int8: INT8}
NO_CACHE = np.zeros((1, SLOTS), dtype=np.int64)
TRIES = 5
CLEARLY = 1.2  # a product is not all of a step, and a busy machine measures badly
FEW = 16  # so few tokens wait for the memory, whoever multiplies


def product(x: Tensor, weight: Tensor, scale: Tensor | None = None) -> Tensor:
    """(…, in) float32 → (…, out); the scale is int8's, (out, groups)."""
    outputs, inputs = weight.shape
    flat, hands = x.reshape(-1, inputs).contiguous(), crew()
    out = torch.empty(len(flat), outputs)
    made = Plan(inputs=inputs)
    made.order(
        Does.LINEAR,
        source=Place.STREAM,
        target=Place.OUT,
        stored=STORED[weight.dtype],
        weight=made.address(weight),
        scale=made.floats(scale),
        groups=1 if scale is None else scale.shape[1],
        inputs=inputs,
        outputs=outputs,
        row=outputs,
    )
    frame = np.zeros(FRAME, dtype=np.int64)
    frame[Frame.BATCH], frame[Frame.TOKENS] = len(flat), 1
    frame[Frame.MEETING], frame[Frame.THREADS] = hands.meeting, hands.size
    workspace = Workspace(made, threads=hands.size)
    places = workspace.places(len(flat), keys=0)
    places[:, Place.STREAM], places[:, Place.OUT] = flat.data_ptr(), out.data_ptr()
    hands.run(enter.address, *made.tables(), frame, NO_CACHE, places)
    return out.view(*x.shape[:-1], outputs)


def most_tokens(weight: Tensor, *, limit: int) -> int:
    """How many tokens a step may have before torch multiplies them faster with a float32 matrix than we do."""
    rows = limit
    while rows > FEW:
        x = torch.randn(rows, weight.shape[1])
        if _seconds(partial(product, x, weight)) <= CLEARLY * _seconds(partial(F.linear, x, weight)):
            break
        rows //= 2
    return rows


def _seconds(job: Callable[[], object]) -> float:
    """The best of a few."""
    times = []
    for _ in range(TRIES):
        began = time.perf_counter()
        job()
        times.append(time.perf_counter() - began)
    return min(times)
