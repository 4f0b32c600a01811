"""Coverage penalty of a beam search: β Σ log min(Σ attention, 1) over the source tokens, where the inner sum is the
attention a token has received so far (Wu et al. 2016, section 7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError


class CrossAttention:
    """Records the attention of the newest token on the source, mean over the heads of the last layer, while it is
    entered. The hook makes the layer compute attention weights explicitly."""

    def __init__(self, model: Any) -> None:
        taps = [tap for name, tap in model.named_modules() if name.endswith("cross.weights")]
        if not taps:
            raise InputError(f"coverage_penalty needs cross-attention, which {type(model).__name__} has not")
        self._tap: nn.Module = taps[-1]
        self.weights: Tensor | None = None  # (row, source)

    def __enter__(self) -> CrossAttention:
        self._handle = self._tap.register_forward_hook(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _record(self, _tap: nn.Module, _inputs: Any, weights: Tensor) -> None:  # (row, head, query, source)
        self.weights = weights[:, :, -1].mean(1)


class Coverage:
    """Attention that each source token has received in each row of one beam search."""

    def __init__(self, penalty: float, source: int) -> None:
        self.penalty, self.source = penalty, source
        self._total: Tensor | None = None  # (row, source)

    def add(self, weights: Tensor, parents: Sequence[int]) -> None:
        """`weights` (row, padded source) of the newest tokens, whose rows continue `parents`."""
        weights = weights[:, : self.source]
        self._total = weights if self._total is None else self._total[list(parents)] + weights

    def penalties(self) -> list[float]:
        """What is added to the score of each row if it ends now; never positive."""
        assert self._total is not None
        least = torch.finfo(self._total.dtype).tiny
        return (self.penalty * self._total.clamp(least, 1.0).log().sum(1)).tolist()
