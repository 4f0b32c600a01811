"""The best weights so far, by one score, kept in a file of their own until the run ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from headway.errors import TrainingError
from headway.training.distributed import World
from headway.training.protocols import Status
from headway.training.state import load_tensors, save_tensors, sha256


@dataclass(frozen=True)
class Best:
    path: Path
    score: str
    higher_is_better: bool

    def judge(self, scores: dict[str, float], model: nn.Module, *, status: Status, world: World) -> None:
        """Keep the present weights if their score is the best so far; else count another try without luck."""
        if self.score not in scores:
            raise TrainingError(f"score: {self.score!r} was not among those evaluated ({', '.join(scores)})")
        value = scores[self.score]
        if math.isnan(value) or not self._better(value, status.best):
            status.unimproved += 1
            return
        digest = world.share(world.first(lambda: save_tensors(self.path, model.state_dict())))
        status.best, status.best_step, status.best_sha256, status.unimproved = value, status.step, digest, 0

    def restore(self, model: nn.Module, *, status: Status, world: World) -> str | None:
        """Put the best weights into the model; why not, if the file no longer holds them."""
        intact = world.first(lambda: self.path.exists() and sha256(self.path) == status.best_sha256)
        if not world.share(intact):
            return f"{self.path}: no longer holds the best weights (of step {status.best_step}); the last ones are kept"
        model.load_state_dict(load_tensors(self.path))
        return None

    def _better(self, value: float, best: float | None) -> bool:
        return best is None or (value > best if self.higher_is_better else value < best)
