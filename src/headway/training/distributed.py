"""One process or several, seen the same way. PyTorch does the work: torchrun starts, DDP sums gradients.

What the ranks must agree on (counts, the clock, whether to stop) goes through a group of its own on the CPU.
With `torchrun --max-restarts` set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: else the new processes look for the dead ones
(pytorch issue 135712).
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
from headway.training.ema import Average
from headway.training.muon import Muon
from headway.training.optim import Optimizers

Result = TypeVar("Result")


@dataclass(frozen=True)
class World:
    rank: int = 0
    size: int = 1
    group: Any = None

    @property
    def main(self) -> bool:
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Each number summed over the ranks."""
        if self.size == 1:
            return list(numbers)
        total = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(total, group=self.group)
        return total.tolist()

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in order of rank."""
        values = [value] * self.size
        if self.size > 1:
            dist.all_gather_object(values, value, group=self.group)
        return values

    def share(self, value: Any) -> Any:
        """The first rank's value."""
        values = [value]
        if self.size > 1:
            dist.broadcast_object_list(values, src=0, group=self.group)
        return values[0]

    def first(self, action: Callable[[], Result]) -> Result | None:
        """Let the first rank act, alone; if it fails, every rank fails with its reason."""
        problem: HeadwayError | None = None
        result: Result | None = None
        if self.main:
            try:
                result = action()
            except HeadwayError as error:
                problem = error
        reason = self.share(problem and str(problem))
        if reason is not None:
            raise problem or TrainingError(reason)
        return result


class Parallel(DistributedDataParallel):
    """DDP that shows the attributes of the model inside, so that a loss need not know it is wrapped."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class Replica:
    """A rank has all of the model, and that is what learns. (`Shards` spreads it over the ranks instead.)"""

    muon = Muon

    def __init__(self, model: nn.Module, world: World, device: torch.device) -> None:
        self.model = self.learner = model.to(device)
        self.world, self.device = world, device
        # whose backward pass averages gradients over the ranks
        self.parallel = Parallel(model, find_unused_parameters=True) if world.size > 1 else model

    def unsynced(self) -> AbstractContextManager[Any]:
        """Gradients stay with their rank while inside: not the last micro-batch."""
        return self.parallel.no_sync() if isinstance(self.parallel, Parallel) else nullcontext()

    def number(self, value: Tensor) -> Tensor:
        """What was computed of all gradients, on every rank."""
        return value

    def gather(self) -> None:
        """Fill the model with what was learnt."""

    @contextmanager
    def kept(self, average: Average | None = None) -> Iterator[nn.Module]:
        """While inside, the model is whole, on the device, and has the learnt weights, or their average."""
        with average.applied() if average is not None else nullcontext():
            yield self.model

    def keep(self, average: Average | None) -> None:
        """Leave the model with the learnt weights, or their average."""
        if average is not None:
            with average.applied():
                averaged = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
            self.model.load_state_dict(averaged)

    def gathered(self, state: Any) -> Any:
        """A state as one process has it; other ranks than the first may get less."""
        return state

    def load(self, state: dict[str, Any], optimizers: Optimizers, average: Average | None) -> None:
        """Put back the parts of a state that belong to parameters."""
        self.model.load_state_dict(state["model"])
        optimizers.load_state_dict(state["optimizer"])
        if average is not None:
            average.load_state_dict(state["average"])


def spread(model: nn.Module, world: World, *, shard: str, device: torch.device) -> Replica:
    """The model as this rank has it."""
    if shard == "none" or world.size == 1:
        return Replica(model, world, device)
    from headway.training.fsdp import Shards  # half a second that others need not wait

    return Shards(model, world, device)


def pick_device(name: str) -> torch.device:
    """The device by name; `auto` takes this process's accelerator if there is one."""
    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def join(device: torch.device) -> World:
    """The world torchrun describes in the environment. A process joins it once, for as long as it lives."""
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return World()
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))  # what the first rank does alone may take long
    return World(rank=dist.get_rank(), size=dist.get_world_size(), group=group)
