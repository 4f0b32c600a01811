"""A named identity: the place where inspection hooks in (idea: TransformerLens' hook points).

A tap's name is its module path, e.g. `decoder.blocks.3.cross.weights`. Without a hook it costs one call.
"""

from torch import Tensor, nn


class Tap(nn.Module):
    """Returns its input. Observe it with a forward hook; a hook that returns a tensor replaces the value."""

    @property
    def hooked(self) -> bool:
        return bool(self._forward_hooks)

    def forward(self, value: Tensor) -> Tensor:
        return value
