"""Permutation language modelling (XLNet, Yang et al. 2019): tokens are predicted in another order than the text's, each
from those that come before it in the order.

A window is two segments; the second attends to the memory of the first (Transformer-XL, Dai et al. 2019). In a permuted
segment some tokens are context, which all others see, and the rest are predicted in a random order. As generation goes
from left to right, half of the segments have the order of the text itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from headway.data.batch import Batch, Loss

SEGMENTS = 2
PREDICTED = 0.5  # of the tokens of a segment
IN_ORDER = 0.5  # of the segments
CONTEXT = -1  # the step of a token that is not predicted: before all others


def permuted(windows: torch.Tensor, *, seeds: Sequence[tuple[int, ...]], where: list[str]) -> Batch:
    """`windows` is (row, length). Orders and targets count within their segment."""
    length = windows.shape[1] // SEGMENTS
    drawn = [[_draw(length, np.random.default_rng((*seed, part))) for part in range(SEGMENTS)] for seed in seeds]
    order, targets = (
        torch.from_numpy(np.stack([np.concatenate([one[which] for one in row]) for row in drawn])) for which in (0, 1)
    )
    inputs = windows[:, : SEGMENTS * length]
    segments = inputs.chunk(SEGMENTS, 1), targets.chunk(SEGMENTS, 1)
    expected = torch.cat(
        [tokens.gather(1, wanted) for tokens, wanted in zip(*segments, strict=True)], 1
    )  # (row, target)
    return Batch(
        {"inputs": inputs, "order": order, "targets": targets}, {"ids": expected}, count=expected.numel(), where=where
    )


def _draw(length: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """(order, targets) of one segment: the step of each token, and the tokens that are predicted. A target has at least
    one token before it."""
    count = max(1, int(PREDICTED * length))
    if rng.random() < IN_ORDER:
        return np.arange(length), np.sort(1 + rng.permutation(length - 1)[:count])
    order, targets = np.full(length, CONTEXT), rng.permutation(length)[:count]
    order[targets] = np.arange(count)
    return order, targets


def permutation_loss(model: nn.Module, batch: Batch) -> Loss:
    """Cross-entropy of the targets, segment by segment."""
    memories, total = None, torch.zeros((), device=batch.targets["ids"].device)
    parts = (x.chunk(SEGMENTS, dim=1) for x in (*batch.inputs.values(), batch.targets["ids"]))
    for inputs, order, targets, ids in zip(*parts, strict=True):
        output = model(inputs, order=order, targets=targets, memories=memories)
        memories = output.memories
        total = total + F.cross_entropy(output.logits.flatten(0, 1), ids.flatten(), reduction="sum")
    return Loss(total)
