"""A single batch whose gradient is far out of line is left out, and said so.

One damaged document can undo hours of learning; runs at scale skip such a batch (Chowdhery et al. 2022, section 5.1).
Only a gradient counts that clipping would cut, that is many times the median of the recent ones, and more than twice
the largest of them: towards the end of a fine-tuning the median is near nothing, and a batch that still has something
to teach is far above it. Two in a row are no longer a single bad batch but the course of the run: the second is taken.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Any

RECENT = 128  # steps the median is taken over; before that many nothing is left out


class Spikes:
    def __init__(self, factor: float, *, clip: float) -> None:
        """`factor` is how many times the median is too much; 0 = nothing is ever left out."""
        self.factor, self.clip = factor, clip
        self.norms: deque[float] = deque(maxlen=RECENT)  # of the steps that were taken
        self.left_out = False  # the step before

    def judge(self, norm: float) -> str | None:
        """Why the step with this gradient norm is to be left out, if it is."""
        known = bool(self.factor) and len(self.norms) == RECENT
        usual = median(self.norms) if known else 0.0
        spike = usual > 0 and norm > max(self.clip, self.factor * usual, 2 * max(self.norms))
        self.left_out = spike and not self.left_out
        if self.left_out:
            return f"its gradient norm, {norm:.3g}, is {norm / usual:.0f} times the median of the steps before it"
        self.norms.append(norm)
        return None

    def state(self) -> dict[str, Any]:
        return {"norms": list(self.norms), "left_out": self.left_out}

    def load(self, state: dict[str, Any]) -> None:
        self.norms.extend(state["norms"])
        self.left_out = state["left_out"]
