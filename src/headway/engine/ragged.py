"""Texts of different lengths without padding: laid end to end in one row, each seeing only itself.

Every layer touches real tokens only. Texts of one length lie side by side, so that attention takes them as a batch; a
row has enough of them to keep the matrix products busy, and no more than memory is easily had for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headway.models.encoder import Encoder

BUDGET = 4096  # tokens a row
MASKED = 512  # where texts cannot be met one by one: scores between all of a row's tokens are worked out


@torch.no_grad()
def encode_ragged(
    model: Encoder,
    rows: Sequence[Sequence[int]],
    *,
    segments: Sequence[Sequence[int]] | None = None,
    budget: int | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """(which text, its hidden states (length, width)), the shortest first: as `encode` would give them one by one."""
    device, stack = next(model.parameters()).device, model.config.stack
    most = budget or (BUDGET if stack.score_bias is None and not stack.windows else MASKED)
    for group in by_length([len(row) for row in rows], budget=most):
        ids = torch.tensor([[token for i in group for token in rows[i]]], device=device)
        kinds = None if segments is None else torch.tensor([[s for i in group for s in segments[i]]], device=device)
        lengths = tuple(len(rows[i]) for i in group)
        positions = torch.cat([torch.arange(length, device=device) for length in lengths])[None]
        hidden = model.encode(ids, positions=positions, sequence_lengths=lengths, segments=kinds)[0]  # (token, width)
        yield from zip(group, hidden.split(lengths), strict=True)


def by_length(lengths: Sequence[int], *, budget: int) -> Iterator[list[int]]:
    """Groups of indices, shortest first, each of at most `budget` tokens (or of one text that is longer)."""
    group, tokens = list[int](), 0
    for index in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if group and tokens + lengths[index] > budget:
            yield group
            group, tokens = [], 0
        group.append(index)
        tokens += lengths[index]
    if group:
        yield group
