"""One process or several behind one interface, on top of PyTorch: torchrun starts the ranks, DDP averages gradients.

Counts, the clock and the decision to stop are exchanged through a process group of their own on the CPU. With
`torchrun --max-restarts` set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, otherwise the restarted processes wait for the ones
that are gone (pytorch issue 135712).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from headway.errors import HeadwayError, TrainingError
from headway.training.ema import EMA
from headway.training.muon import Muon
from headway.training.optim import Optimizers

Result = TypeVar("Result")


@dataclass(frozen=True)
class World:
    """The rank of this process, the number of ranks, and the collective operations on host values."""

    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def all_reduce(self, *numbers: float) -> list[float]:
        """The sum of each number over the ranks."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, group=self.group)
        return total.tolist()

    def all_gather(self, value: Any) -> list[Any]:
        """The value of every rank, ordered by rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=self.group)
        return values

    def broadcast(self, value: Any) -> Any:
        """The value of rank 0, on every rank."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]

    def run_on_main(self, action: Callable[[], Result]) -> Result | None:
        """Run `action` on rank 0 only; the other ranks wait and get None. A HeadwayError on rank 0 is raised on every
        rank."""
        problem: HeadwayError | None = None
        result: Result | None = None
        if self.is_main:
            try:
                result = action()
            except HeadwayError as error:
                problem = error
        reason = self.broadcast(problem and str(problem))
        if reason is not None:
            raise problem or TrainingError(reason)
        return result


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


def pick_device(name: str) -> torch.device:
    """The device by name; `auto` is this process's accelerator if there is one."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def init_distributed(device: torch.device) -> World:
    """The ranks that torchrun describes in the environment. Initialises the process group once per process."""
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return World()
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))  # the other ranks wait long for run_on_main
    return World(rank=dist.get_rank(), size=dist.get_world_size(), group=group)
