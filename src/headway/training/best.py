"""The best weights so far by one score, stored in a file of their own until the run ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from torch import Tensor, nn

from headway.distributed import World
from headway.errors import TrainingError
from headway.files import is_present, sha256
from headway.training.protocols import Status
from headway.training.state import load_tensors, save_tensors


def changing(model: nn.Module) -> dict[str, Tensor]:
    """The state of a model but for its frozen parameters, which are those of its folder."""
    frozen = {name for name, each in model.named_parameters(remove_duplicate=False) if not each.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in frozen}


@dataclass(frozen=True)
class BestCheckpoint:
    path: Path
    score: str
    higher_is_better: bool

    def update(self, scores: dict[str, float], model: nn.Module, *, status: Status, world: World) -> None:
        """Save the current weights if their score is the best so far, or equal to it with a lower loss. An evaluation
        without a better score counts towards `patience`."""
        if self.score not in scores:
            raise TrainingError(f"score: {self.score!r} is not among the evaluated scores ({', '.join(scores)})")
        value, loss = scores[self.score], scores.get("loss", math.inf)
        improved = not math.isnan(value) and self._improves(value, status.best)
        status.unimproved = 0 if improved else status.unimproved + 1
        tied = value == status.best and status.best_loss is not None and loss < status.best_loss
        if improved or tied:
            digest = world.broadcast(world.run_on_main(lambda: save_tensors(self.path, changing(model))))
            status.best, status.best_step, status.best_sha256 = value, status.step, digest
            status.best_loss = loss if math.isfinite(loss) else None

    def restore(self, model: nn.Module, *, status: Status, world: World) -> str | None:
        """Load the best weights into the model. Returns a warning if the file no longer holds them."""
        intact = world.run_on_main(lambda: self._holds(status.best_sha256))
        if not world.broadcast(intact):
            return f"{self.path}: no longer holds the best weights (of step {status.best_step}); the last ones are kept"
        found = model.load_state_dict(load_tensors(self.path), strict=False)
        if found.unexpected_keys or set(found.missing_keys) & changing(model).keys():
            return f"{self.path}: does not hold the weights of this model; the last ones are kept"
        return None

    def _holds(self, digest: str) -> bool:
        try:
            return is_present(self.path) and sha256(self.path, inside=self.path.parent.parent) == digest
        except OSError as error:
            raise TrainingError(f"{self.path}: the best weights cannot be read ({error.strerror})") from error

    def _improves(self, value: float, best: float | None) -> bool:
        return best is None or (value > best if self.higher_is_better else value < best)
