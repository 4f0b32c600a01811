"""Weights, gradients and optimiser state spread over the ranks (ZeRO stage 3, Rajbhandari et al. 2020), by
PyTorch's FSDP2: every parameter is cut by rows, put together block by block just before it is needed, and its gradient
goes back as rows.

What learns is a copy, cut up. The model itself stays whole in the host's memory and is filled in to be evaluated and
saved: a state, and the folder a run ends with, look the same whatever the number of ranks.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard

from headway.training.distributed import Replica, World
from headway.training.ema import Average
from headway.training.muon import Muon
from headway.training.optim import Optimizers


class Shards(Replica):
    """A model's copy in pieces, one piece a rank."""

    def __init__(self, model: nn.Module, world: World, device: torch.device) -> None:
        self.model, self.world, self.device = model.cpu().train(), world, device
        self.muon = ShardedMuon
        mesh = init_device_mesh(device.type, (world.size,))
        self.parallel = self.learner = copy.deepcopy(model).to(device)
        for module in self.learner.modules():
            if getattr(module, "is_block", False):
                fully_shard(module, mesh=mesh)
        fully_shard(self.learner, mesh=mesh)

    def unsynced(self) -> AbstractContextManager[None]:
        """Every micro-batch's gradient is cut at once: whole ones would need the room that was saved."""
        return nullcontext()

    def number(self, value: Tensor) -> Tensor:
        return _full(value)

    @torch.no_grad()
    def gather(self, average: Average | None = None) -> None:
        pieces = _tensors(self.learner) | (average.state_dict()["mean"] if average is not None else {})
        for name, tensor in _tensors(self.model).items():
            tensor.copy_(_full(pieces[name]))

    @contextmanager
    def kept(self, average: Average | None = None) -> Iterator[nn.Module]:
        self.gather(average)
        self.model.to(self.device)
        try:
            yield self.model
        finally:
            self.model.cpu()

    def keep(self, average: Average | None) -> None:
        self.gather(average)

    def gathered(self, state: Any) -> Any:
        """Put together one tensor at a time; only the first rank keeps them."""
        if isinstance(state, DTensor):
            full = _full(state)
            return full.cpu() if self.world.main else None
        if isinstance(state, dict):
            return {key: self.gathered(value) for key, value in state.items()}
        if isinstance(state, list | tuple):
            return type(state)(self.gathered(value) for value in state)
        return state

    @torch.no_grad()
    def load(self, state: dict[str, Any], optimizers: Optimizers, average: Average | None) -> None:
        self.model.load_state_dict(state["model"])
        whole, cut = _tensors(self.model), dict(self.learner.named_parameters())
        for name, tensor in _tensors(self.learner).items():
            tensor.copy_(self._like(whole[name], tensor))
        learnt = {}
        for name, part in optimizers.parts.items():
            parameters = [parameter for group in part.param_groups for parameter in group["params"]]
            places = {
                place: {key: self._like(value, parameters[place]) for key, value in kept.items()}
                for place, kept in state["optimizer"][name]["state"].items()
            }
            learnt[name] = {**state["optimizer"][name], "state": places}
        optimizers.load_state_dict(learnt)
        if average is not None:
            mean = {name: self._like(value, cut[name]) for name, value in state["average"]["mean"].items()}
            average.load_state_dict({**state["average"], "mean": mean})

    def _like(self, whole: Any, tensor: Tensor) -> Any:
        """This rank's rows, if `tensor` is cut and of that shape; anything else as it stands."""
        if not isinstance(whole, Tensor) or not isinstance(tensor, DTensor) or whole.shape != tensor.shape:
            return whole
        rows = whole.chunk(self.world.size)
        own = rows[self.world.rank] if self.world.rank < len(rows) else whole[:0]
        return _assemble(own.to(self.device), tensor, [Shard(0)], whole.shape)


class ShardedMuon(Muon):
    """Muon needs whole matrices: each rank is sent all rows of its share of them, and sends the result back."""

    def _step_stack(self, parameters: list[Tensor], *, lr: float, momentum: float, weight_decay: float) -> None:
        momenta = [_local(self._momentum(parameter)) for parameter in parameters]
        gradients = [_local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        ahead = torch.stack(torch._foreach_lerp(gradients, momenta, momentum))  # (matrix, own row, column)
        first, shape = parameters[0], torch.Size([len(parameters), *parameters[0].shape])
        own = _assemble(ahead, first, [Shard(1)], shape).redistribute(placements=[Shard(0)]).to_local()
        work = self._orthogonalizer(len(own), first)
        work.x.copy_(own)  # (own matrix, row, column)
        done = _assemble(work().to(own.dtype), first, [Shard(0)], shape).redistribute(placements=[Shard(1)])
        pieces = [_local(parameter) for parameter in parameters]
        if weight_decay:
            torch._foreach_mul_(pieces, 1 - lr * weight_decay)
        rows, columns = first.shape
        torch._foreach_add_(pieces, list(done.to_local().unbind()), alpha=-lr * max(1, rows / columns) ** 0.5)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _assemble(own: Tensor, like: Tensor, placements: list[Any], shape: torch.Size) -> DTensor:
    """A rank's own piece as part of a tensor of `shape` on the ranks of `like`."""
    assert isinstance(like, DTensor)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(own, like.device_mesh, placements, run_check=False, shape=shape, stride=stride)
