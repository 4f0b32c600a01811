"""Averages of weights: a moving one kept during training (Polyak & Juditsky 1992), which scores like a run
with its learning rate decayed further, and the plain mean of several checkpoints (Vaswani et al. 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headway.errors import CheckpointError, TrainingError


class Average:
    """An exponential moving average of what a model learns; frozen parameters need none.

    The first updates forget faster, with decay (1 + n) / (10 + n), so that the random start is soon gone.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.updates = 0
        self._live = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._mean = {name: parameter.detach().clone() for name, parameter in self._live.items()}
        self._swapped = False

    @torch.no_grad()
    def update(self) -> None:
        """Take in the weights as they are after a step."""
        self._refuse_inside("updated")
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(list(self._mean.values()), list(self._live.values()), 1 - decay)
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """While inside, the model has the averaged weights. Nothing is copied, so the others come back bit for bit."""
        self._refuse_inside("applied")
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state_dict(self) -> dict[str, Any]:
        self._refuse_inside("saved")
        return {"updates": self.updates, "mean": dict(self._mean)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._refuse_inside("loaded")
        if different := set(state["mean"]) ^ set(self._mean):
            raise CheckpointError(f"the saved average is of other parameters, {min(different)!r} for one")
        self.updates = state["updates"]
        for name, mean in self._mean.items():
            mean.copy_(state["mean"][name])

    def _swap(self) -> None:
        self._swapped = not self._swapped
        for name, parameter in self._live.items():
            parameter.data, self._mean[name] = self._mean[name], parameter.data

    def _refuse_inside(self, verb: str) -> None:
        if self._swapped:
            raise TrainingError(f"an average cannot be {verb} while it is applied to the model")


def average_states(states: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several state dicts, summed in float64; counters and other whole numbers are the last one's."""
    if not states:
        raise CheckpointError("there is no checkpoint to average")
    last = states[-1]
    for number, state in enumerate(states, start=1):
        wrong = set(state) ^ set(last) or {name for name in last if state[name].shape != last[name].shape}
        if wrong:
            raise CheckpointError(f"checkpoint {number} is of another model: {min(wrong)!r} differs from the last one")
    return {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor.clone()
        for name, tensor in last.items()
    }
