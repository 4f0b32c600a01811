"""Exponential moving average (EMA) of the weights, kept during training (Polyak & Juditsky 1992). It scores like the
weights of a run whose learning rate was decayed further."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from headway.errors import CheckpointError, TrainingError


class EMA:
    """EMA of the trainable parameters of a model.

    The decay of update n is min(decay, (1 + n) / (10 + n)), so that the initial weights are forgotten quickly.
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.updates = 0
        self._live = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        self._mean = {name: parameter.detach().clone() for name, parameter in self._live.items()}
        self._swapped = False

    @torch.no_grad()
    def update(self) -> None:
        """Include the current weights in the average."""
        self._refuse_if_applied("updated")
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        torch._foreach_lerp_(list(self._mean.values()), list(self._live.values()), 1 - decay)
        self.updates += 1

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Context in which the model holds the averaged weights. Storage is swapped, not copied, so the trained
        weights come back bit for bit."""
        self._refuse_if_applied("applied")
        self._swap()
        try:
            yield
        finally:
            self._swap()

    def state_dict(self) -> dict[str, Any]:
        self._refuse_if_applied("saved")
        return {"updates": self.updates, "mean": dict(self._mean)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._refuse_if_applied("loaded")
        if different := set(state["mean"]) ^ set(self._mean):
            raise CheckpointError(f"the saved EMA has other parameters, for example {min(different)!r}")
        self.updates = state["updates"]
        for name, mean in self._mean.items():
            mean.copy_(state["mean"][name])

    def _swap(self) -> None:
        self._swapped = not self._swapped
        for name, parameter in self._live.items():
            parameter.data, self._mean[name] = self._mean[name], parameter.data

    def _refuse_if_applied(self, verb: str) -> None:
        if self._swapped:
            raise TrainingError(f"an EMA cannot be {verb} while it is applied to the model")
