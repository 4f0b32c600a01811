"""The model of one rank: a whole copy, with DDP if there are several ranks, or shards (fsdp.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headway.distributed import World
from headway.training.ema import EMA
from headway.training.muon import Muon
from headway.training.optim import Optimizers


class AttributeDDP(DistributedDataParallel):
    """DDP that forwards unknown attributes to the wrapped model, so that a loss function can use them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class Replica:
    """A whole copy of the model on every rank, with DDP if there are several. `FSDPReplica` shards it instead.

    `model` is the whole model, `trained` the module whose parameters the optimiser updates, `parallel` the module whose
    backward averages gradients over the ranks.
    """

    muon = Muon

    def __init__(self, model: nn.Module, world: World, device: torch.device) -> None:
        self.model = self.trained = model.to(device)
        self.world, self.device = world, device
        self.parallel = AttributeDDP(model, find_unused_parameters=True) if world.size > 1 else model

    def no_sync(self) -> AbstractContextManager[Any]:
        """Context in which gradients are accumulated without averaging, for all micro-batches but the last."""
        return self.parallel.no_sync() if isinstance(self.parallel, AttributeDDP) else nullcontext()

    def full_tensor(self, value: Tensor) -> Tensor:
        """A value computed from all gradients, as a plain tensor on every rank."""
        return value

    def gather_weights(self) -> None:
        """Copy the trained weights into `model`."""

    @contextmanager
    def full_model(self, ema: EMA | None = None) -> Iterator[nn.Module]:
        """Context in which `model` is whole, on the device, and holds the trained weights or their EMA."""
        with ema.applied() if ema is not None else nullcontext():
            yield self.model

    def finish(self, ema: EMA | None) -> None:
        """Leave `model` with the trained weights or their EMA."""
        if ema is not None:
            with ema.applied():
                averaged = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.model.load_state_dict(averaged)

    def gather_state(self, state: Any) -> Any:
        """A state dict with whole tensors. It is complete on rank 0 only."""
        return state

    def load(self, state: dict[str, Any], optimizers: Optimizers, ema: EMA | None) -> None:
        """Load weights, optimiser state and EMA from a saved training state."""
        self.model.load_state_dict(state["model"])
        optimizers.load_state_dict(state["optimizer"])
        if ema is not None:
            ema.load_state_dict(state["average"])


def distribute(model: nn.Module, world: World, *, shard: str, device: torch.device) -> Replica:
    """Place the model on this rank's device, whole or sharded (`shard="full"`)."""
    if shard == "none" or world.size == 1:
        return Replica(model, world, device)
    from headway.training.fsdp import FSDPReplica  # the import takes half a second

    return FSDPReplica(model, world, device)
