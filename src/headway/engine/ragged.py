"""Room: engine. Texts of different lengths without padding: laid end to end in one row, each seeing only itself.

The linear layers, which are nearly all the work, then touch real tokens only. Attention runs over the whole row under a
block-diagonal mask, so a row is kept short enough that this costs less than the padding would.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headway.data.stream import pack
from headway.models.encoder import Encoder

BUDGET = 512  # tokens a row


@torch.no_grad()
def encode_ragged(
    model: Encoder,
    rows: Sequence[Sequence[int]],
    *,
    segments: Sequence[Sequence[int]] | None = None,
    budget: int = BUDGET,
) -> list[Tensor]:
    """The hidden states of each text, (length, width), as `encode` would give them one by one."""
    device = next(model.parameters()).device
    out: list[Tensor | None] = [None] * len(rows)
    sizes = [len(row) for row in rows]
    for group in pack(sizes, max([budget, *sizes])):
        ids = torch.tensor([[token for i in group for token in rows[i]]], device=device)
        lengths = [sizes[i] for i in group]
        counts = torch.tensor(lengths, device=device)
        owner = torch.repeat_interleave(torch.arange(len(group), device=device), counts)[None]
        starts = torch.repeat_interleave(counts.cumsum(0) - counts, counts)
        positions = torch.arange(ids.shape[1], device=device)[None] - starts
        kinds = None if segments is None else torch.tensor([[s for i in group for s in segments[i]]], device=device)
        packing = owner if len(group) > 1 else None
        hidden = model.encode(ids, positions=positions, packing=packing, segments=kinds)[0]
        for index, part in zip(group, hidden.split(lengths), strict=True):
            out[index] = part
    return [part for part in out if part is not None]
