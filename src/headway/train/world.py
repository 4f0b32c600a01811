"""Train: one process or several, seen the same way. PyTorch does the work: torchrun starts, DDP sums gradients.

What the ranks must agree on (counts, the clock, whether to stop) goes through a group of its own on the CPU.
With `torchrun --max-restarts` set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1: else the new processes look for the dead ones
(pytorch issue 135712).
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from headway.errors import HeadwayError, TrainingError

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


def parallel(model: nn.Module, world: World) -> nn.Module:
    """The model whose backward pass averages gradients over the ranks."""
    if world.size == 1:
        return model
    return Parallel(model, find_unused_parameters=True)


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
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))  # an evaluation by the first rank may take long
    return World(rank=dist.get_rank(), size=dist.get_world_size(), group=group)
