"""Weights, gradients and optimiser state sharded over the ranks (ZeRO stage 3, Rajbhandari et al. 2020) with
PyTorch's FSDP2: every parameter is split by rows, gathered block by block just before it is used, and its gradient is
reduce-scattered.

A sharded copy is trained. The model itself stays whole in host memory and is filled in for evaluation and saving, so
that states and model folders are the same for any number of ranks.
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

from headway.distributed import World
from headway.training.ema import EMA
from headway.training.muon import Muon
from headway.training.optim import Optimizers
from headway.training.replica import Replica


class FSDPReplica(Replica):
    """Trains a sharded copy of the model."""

    def __init__(self, model: nn.Module, world: World, device: torch.device) -> None:
        self.model, self.world, self.device = model.cpu().train(), world, device
        self.muon = ShardedMuon
        mesh = init_device_mesh(device.type, (world.size,))
        self.parallel = self.trained = copy.deepcopy(model).to(device)
        for module in self.trained.modules():
            if getattr(module, "is_block", False):
                fully_shard(module, mesh=mesh)
        fully_shard(self.trained, mesh=mesh)

    def no_sync(self) -> AbstractContextManager[None]:
        """Gradients are reduce-scattered after every micro-batch: accumulating whole ones would need the memory that
        sharding saves."""
        return nullcontext()

    def full_tensor(self, value: Tensor) -> Tensor:
        return _full(value)

    @torch.no_grad()
    def gather_weights(self, ema: EMA | None = None) -> None:
        sharded = _tensors(self.trained) | (ema.state_dict()["mean"] if ema is not None else {})
        for name, tensor in _tensors(self.model).items():
            tensor.copy_(_full(sharded[name]))

    @contextmanager
    def full_model(self, ema: EMA | None = None) -> Iterator[nn.Module]:
        self.gather_weights(ema)
        self.model.to(self.device)
        try:
            yield self.model
        finally:
            self.model.cpu()

    def finish(self, ema: EMA | None) -> None:
        self.gather_weights(ema)

    def gather_state(self, state: Any) -> Any:
        """Gathers one tensor at a time; only rank 0 keeps them."""
        if isinstance(state, DTensor):
            full = _full(state)
            return full.cpu() if self.world.is_main else None
        if isinstance(state, dict):
            return {key: self.gather_state(value) for key, value in state.items()}
        if isinstance(state, list | tuple):
            return type(state)(self.gather_state(value) for value in state)
        return state

    @torch.no_grad()
    def load(self, state: dict[str, Any], optimizers: Optimizers, ema: EMA | None) -> None:
        self.model.load_state_dict(state["model"])
        whole, sharded = _tensors(self.model), dict(self.trained.named_parameters())
        for name, tensor in _tensors(self.trained).items():
            tensor.copy_(self._shard_like(whole[name], tensor))
        optimizer_state = {}
        for name, part in optimizers.parts.items():
            parameters = [parameter for group in part.param_groups for parameter in group["params"]]
            sharded_state = {
                index: {key: self._shard_like(value, parameters[index]) for key, value in values.items()}
                for index, values in state["optimizer"][name]["state"].items()
            }
            optimizer_state[name] = {**state["optimizer"][name], "state": sharded_state}
        optimizers.load_state_dict(optimizer_state)
        if ema is not None:
            mean = {name: self._shard_like(value, sharded[name]) for name, value in state["average"]["mean"].items()}
            ema.load_state_dict({**state["average"], "mean": mean})

    def _shard_like(self, whole: Any, tensor: Tensor) -> Any:
        """This rank's rows of `whole` if `tensor` is sharded and has the same shape; otherwise `whole` itself."""
        if not isinstance(whole, Tensor) or not isinstance(tensor, DTensor) or whole.shape != tensor.shape:
            return whole
        rows = whole.chunk(self.world.size)
        own = rows[self.world.rank] if self.world.rank < len(rows) else whole[:0]
        return _as_dtensor(own.to(self.device), tensor, [Shard(0)], whole.shape)


class ShardedMuon(Muon):
    """Muon needs whole matrices: an all-to-all gives each rank all rows of some, another returns the updates."""

    def _step_stack(self, parameters: list[Tensor], *, lr: float, momentum: float, weight_decay: float) -> None:
        momenta = [_local(self._momentum(parameter)) for parameter in parameters]
        gradients = [_local(parameter.grad) for parameter in parameters if parameter.grad is not None]
        torch._foreach_lerp_(momenta, gradients, 1 - momentum)
        ahead = torch.stack(torch._foreach_lerp(gradients, momenta, momentum))  # (matrix, own row, column)
        first, shape = parameters[0], torch.Size([len(parameters), *parameters[0].shape])
        own = _as_dtensor(ahead, first, [Shard(1)], shape).redistribute(placements=[Shard(0)]).to_local()
        work = self._orthogonalizer(len(own), first)
        work.x.copy_(own)  # (own matrix, row, column)
        done = _as_dtensor(work().to(own.dtype), first, [Shard(0)], shape).redistribute(placements=[Shard(1)])
        shards = [_local(parameter) for parameter in parameters]
        if weight_decay:
            torch._foreach_mul_(shards, 1 - lr * weight_decay)
        rows, columns = first.shape
        torch._foreach_add_(shards, list(done.to_local().unbind()), alpha=-lr * max(1, rows / columns) ** 0.5)


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


def _full(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _as_dtensor(own: Tensor, like: Tensor, placements: list[Any], shape: torch.Size) -> DTensor:
    """This rank's shard as a DTensor of global `shape` on the mesh of `like`."""
    assert isinstance(like, DTensor)
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(own, like.device_mesh, placements, run_check=False, shape=shape, stride=stride)
