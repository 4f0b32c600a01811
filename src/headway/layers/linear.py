"""torch's Linear and Embedding, which draw no initial values on the meta device: a model whose weights are about to be
loaded is built in no time.

`table` is what `linear` multiplies with: the weight, or what stands for it where it is stored in another format."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from headway.layers.replaceable import replaceable


@replaceable
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.linear(x, weight, bias)


class _Deferred(nn.Module):
    weight: Tensor

    @property
    def table(self) -> Tensor:
        return self.weight

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()  # type: ignore[misc]


class Linear(_Deferred, nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class TokenTable(_Deferred, nn.Embedding):
    pass
