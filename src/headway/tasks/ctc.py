"""Connectionist temporal classification (Graves et al. 2006) as an auxiliary loss of the encoder.

Each vector of the encoder scores the tokens and a blank; the loss is the negative log-probability of the target over
all monotonic alignments. It aligns sound and text long before cross-attention does (Kim, Hori and Watanabe 2017). The
decoder alone generates.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def ctc_loss(
    logits: Tensor,  # (batch, vector, token + 1); the last is the blank
    frames: Tensor,  # (batch,): of each sound
    targets: Tensor,  # (batch, token), of which `ignored` ones are padding
    *,
    stride: int,  # frames of one vector
    ignored: int,
) -> Tensor:
    """The sum over the batch. A target that is longer than its sound has vectors counts as 0."""
    log_probabilities = logits.float().log_softmax(-1).transpose(0, 1)  # (vector, batch, token + 1)
    vectors = torch.div(frames + stride - 1, stride, rounding_mode="floor")
    kept = targets != ignored
    return F.ctc_loss(
        log_probabilities,
        targets.masked_fill(~kept, 0),
        vectors,
        kept.sum(1),
        blank=logits.shape[-1] - 1,
        reduction="sum",
        zero_infinity=True,
    )
