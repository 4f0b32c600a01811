"""`Batch`: collated tensors that a task gives to the training loop. `Loss`: what it computes from a model's output."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """`inputs` are keyword arguments of the model's forward; `count` is the number of predictions the loss sums over;
    `where` has each row's `file:line`; `sequence_lengths` are those of sequences laid end to end in one row."""

    inputs: dict[str, Tensor]
    targets: dict[str, Tensor]
    count: int
    where: list[str]
    sequence_lengths: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        return len(self.where) or len(self.sequence_lengths or next(iter(self.inputs.values())))

    def to(self, device: torch.device | str) -> Batch:
        def move(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
            return {name: tensor.to(device, non_blocking=True) for name, tensor in tensors.items()}

        return replace(self, inputs=move(self.inputs), targets=move(self.targets))


@dataclass(frozen=True)
class Loss:
    """`total` and each of `parts` are sums over the batch's `count` predictions."""

    total: Tensor
    parts: dict[str, Tensor] = field(default_factory=dict)
