"""The processes that torchrun started, or the only one, behind one interface.

Values of the host (counts, the clock, the decision to stop) are exchanged through a process group of their own on the
CPU. With `torchrun --max-restarts` set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, otherwise the restarted processes wait for
the ones that are gone (pytorch issue 135712).
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

from headway.errors import ConfigError, HeadwayError, TrainingError

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


def pick_device(name: str) -> torch.device:
    """The device by name; `auto` is this process's accelerator if there is one."""
    if name != "auto":
        return _available(name)
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _available(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device: {name!r} is not a device such as auto, cpu, cuda, cuda:1 or mps") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"device: {name!r}, but this machine has no CUDA device that torch can use; set auto or cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(f"device: {name!r}, but there are {torch.cuda.device_count()} CUDA devices")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise ConfigError(f"device: {name!r}, but torch finds no MPS device here; set auto or cpu")
    return device


def init_distributed(device: torch.device) -> World:
    """The ranks that torchrun describes in the environment. Initialises the process group once per process."""
    if not dist.is_initialized() and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(dist.destroy_process_group)
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return World()
    group = dist.new_group(backend="gloo", timeout=timedelta(days=1))  # the other ranks wait long for run_on_main
    return World(rank=dist.get_rank(), size=dist.get_world_size(), group=group)
