"""A named identity: the place where inspection listens (idea: TransformerLens' hook points).

A tap's name is its module path, e.g. `decoder.blocks.3.cross.weights`. It costs one call when nobody listens.
"""

from torch import Tensor, nn


class Tap(nn.Module):
    """Returns what it is given. Listen with a forward hook; a hook that returns a tensor replaces the value."""

    @property
    def listening(self) -> bool:
        return bool(self._forward_hooks)

    def forward(self, value: Tensor) -> Tensor:
        return value
