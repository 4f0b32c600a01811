"""Skips the update of a single batch with an extreme gradient norm.

One damaged document can undo hours of training; runs at scale skip such a batch (Chowdhery et al. 2022, section 5.1).
A norm is a spike if clipping would cut it, if it is `factor` times the median of recent norms, and if it is more than
twice the largest of them: near the end of fine-tuning the median is close to 0, and useful batches are far above it.
After a skipped step the next one is always taken: two large norms in a row are not a single bad batch.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

RECENT = 128  # norms in the median; no step is skipped before there are as many


class SpikeFilter:
    def __init__(self, factor: float, *, clip: float) -> None:
        """`factor` is the multiple of the median that counts as a spike; 0 = never skip."""
        self.factor, self.clip = factor, clip
        self.norms: deque[float] = deque(maxlen=RECENT)  # of recent steps that were not skipped
        self.skipped_last = False

    def check(self, norm: float) -> str | None:
        """The reason to skip a step with this gradient norm, or None."""
        enough = bool(self.factor) and len(self.norms) == RECENT
        typical = median(self.norms) if enough else 0.0
        spike = typical > 0 and norm > max(self.clip, self.factor * typical, 2 * max(self.norms))
        self.skipped_last = spike and not self.skipped_last
        if self.skipped_last:
            return f"its gradient norm, {norm:.3g}, is {norm / typical:.0f} times the median of the steps before it"
        self.norms.append(norm)
        return None

    def state(self) -> dict[str, Any]:
        return {"norms": list(self.norms), "left_out": self.skipped_last}

    def load(self, state: dict[str, Any]) -> None:
        self.norms.extend(state["norms"])
        self.skipped_last = state["left_out"]
