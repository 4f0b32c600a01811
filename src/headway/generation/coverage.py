"""Coverage: how much attention each source token has had while an answer was written, and the penalty
for those that had little (Wu et al. 2016, section 7): β Σ log min(Σ attention, 1) over the source."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import InputError
from headway.generation.prefill import Sources


class Coverage:
    """Listens to the last layer's cross-attention, the mean of its heads, while it is open."""

    def __init__(self, model: Any, sources: Sources | None, *, penalty: float) -> None:
        taps = [tap for name, tap in model.named_modules() if name.endswith("cross.weights")]
        if not taps or sources is None:
            raise InputError(f"coverage_penalty needs a model that looks at a source; {type(model).__name__} has none")
        self._tap: nn.Module = taps[-1]
        self._lengths = [len(source) for source in sources]
        self._penalty = penalty
        self._fresh: Tensor | None = None
        self._total: Tensor | None = None  # (row, source)

    def __enter__(self) -> Coverage:
        self._handle = self._tap.register_forward_hook(self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.remove()

    def _hear(self, _tap: nn.Module, _inputs: Any, weights: Tensor) -> None:  # (row, head, query, source)
        self._fresh = weights[:, :, -1].mean(1)  # of the token that comes next

    def repeat(self, times: int) -> None:
        """After the prompts were read: each row's, as often as there are beams."""
        assert self._fresh is not None
        real = torch.tensor(self._lengths, device=self._fresh.device)[:, None]
        padding = torch.arange(self._fresh.shape[1], device=self._fresh.device)[None] >= real
        self._total = self._fresh.masked_fill(padding, 1.0).repeat_interleave(times, 0)  # padding costs nothing

    def step(self, rows: list[int]) -> None:
        """After a step was made behind these rows."""
        assert self._total is not None and self._fresh is not None
        self._total = self._total[rows] + self._fresh

    def penalties(self) -> list[float]:
        """What each row would gain by ending now: nothing, or less than nothing."""
        assert self._total is not None
        least = torch.finfo(self._total.dtype).tiny
        return (self._penalty * self._total.clamp(least, 1.0).log().sum(1)).tolist()
