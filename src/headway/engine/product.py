"""Room: engine. One int8 matrix times many tokens, compiled: an encoder's layers, and the reading of a prompt."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from headway.engine.crew import crew
from headway.engine.kernels import INT8
from headway.engine.machine import FEW, FRAME, ORDER, PLACES, SLOTS, Does, Frame, Order, Place, run

NO_CACHE = np.zeros((1, SLOTS), dtype=np.int64)
LINE = 64


def int8_product(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    """(…, in) float32 → (…, out)"""
    outputs, inputs = codes.shape
    flat = x.reshape(-1, inputs).contiguous()
    tokens, hands = len(flat), crew()
    out = torch.empty(tokens, outputs)
    order = np.zeros((1, ORDER), dtype=np.int64)
    order[0, Order.DOES], order[0, Order.STORED], order[0, Order.RESIDUAL] = Does.LINEAR, INT8, -1
    order[0, Order.SOURCE], order[0, Order.TARGET] = Place.STREAM, Place.OUT
    order[0, Order.WEIGHT], order[0, Order.SCALE] = codes.data_ptr(), scale.data_ptr()
    order[0, Order.INPUTS], order[0, Order.OUTPUTS], order[0, Order.ROW] = inputs, outputs, outputs
    order[0, Order.GROUPS] = scale.shape[1]
    short, factors = 2 * inputs * max(tokens, FEW), 4 * max(tokens, FEW)
    memory = torch.empty(short + factors + hands.size * (2 * FEW * inputs + 6 * LINE), dtype=torch.uint8)
    frame, places = np.zeros(FRAME, dtype=np.int64), np.zeros((hands.size, PLACES), dtype=np.int64)
    meeting = np.zeros(3 * LINE // 8, dtype=np.int64)
    frame[Frame.BATCH], frame[Frame.TOKENS] = tokens, 1
    frame[Frame.MEETING], frame[Frame.THREADS] = meeting.ctypes.data, hands.size
    places[:, Place.STREAM], places[:, Place.OUT] = flat.data_ptr(), out.data_ptr()
    places[:, Place.SHORT], places[:, Place.FACTORS] = memory.data_ptr(), memory.data_ptr() + short
    own = memory.data_ptr() + short + factors
    for thread in range(hands.size):
        at = own + thread * (2 * FEW * inputs + 6 * LINE)
        places[thread, Place.SCRATCH], places[thread, Place.OWN_FACTORS] = at + LINE, at + 3 * LINE
        places[thread, Place.OWN_SHORT] = at + 5 * LINE
    hands.run(run, order, np.ones((1, 2), dtype=np.float32), frame, NO_CACHE, places)
    return out.view(*x.shape[:-1], outputs)
