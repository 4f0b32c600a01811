"""Encodes texts of different lengths without padding: packed into one row, each attending only to itself.

No layer computes padding. Texts are sorted by length, so that attention runs texts of the same length as one batch; a
row has enough tokens for efficient matrix products, within a memory budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from headway.data.length_batches import BatchLimits, by_length
from headway.models.encoder import Encoder

BUDGET = 4096  # tokens per row
MASKED = 512  # with a score bias: attention computes the scores between all tokens of a row


@torch.no_grad()
def encode_ragged(
    model: Encoder,
    rows: Sequence[Sequence[int]],
    *,
    segments: Sequence[Sequence[int]] | None = None,
    budget: int | None = None,
) -> Iterator[tuple[int, Tensor]]:
    """Yields (index of the text, its hidden states (length, width)), shortest first; equal to `encode` on each text."""
    device, stack = next(model.parameters()).device, model.config.stack
    most = budget or (MASKED if stack.score_bias or stack.relative else BUDGET)
    for group in by_length([len(row) for row in rows], BatchLimits(tokens=most)):
        ids = torch.tensor([[token for i in group for token in rows[i]]], device=device)
        kinds = None if segments is None else torch.tensor([[s for i in group for s in segments[i]]], device=device)
        lengths = tuple(len(rows[i]) for i in group)
        positions = torch.cat([torch.arange(length, device=device) for length in lengths])[None]
        hidden = model.encode(ids, positions=positions, sequence_lengths=lengths, segments=kinds)[0]  # (token, width)
        yield from zip(group, hidden.split(lengths), strict=True)
