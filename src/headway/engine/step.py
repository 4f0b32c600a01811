"""Room: engine. A decoder's `step`, fast. It takes the method's place on the decoder it is made for, gives the same
logits, writes to the same cache, and leaves to the method whatever it does not do itself: reading a prompt, large
batches, gradients, a model on another device, and a step that somebody listens to.

Compiled code is loaded when the first step wants it, so that it delays no first token.
"""

from __future__ import annotations

import copy
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headway.engine.compiler import can_compile
from headway.layers.cache import KeyValueCache
from headway.models.decoder import Decoder

if TYPE_CHECKING:
    from headway.engine.decoding import Compiled

ROWS = 64  # tokens in a step; more are better multiplied by a library


class FastStep:
    def __init__(self, decoder: Decoder):
        self.decoder = decoder
        self.reason = None if can_compile() else "numba is not installed (pip install headway[fast])"
        self._lock = threading.Lock()
        self._hooks = [hooks for m in decoder.modules() for hooks in (m._forward_hooks, m._forward_pre_hooks)]
        self._compiled: Compiled | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> FastStep:
        return FastStep(copy.deepcopy(self.decoder, memo))  # addresses are of one model only

    def __call__(self, ids: Tensor, cache: KeyValueCache, *, mask: Tensor | None = None, last: bool = True) -> Tensor:
        """Feeds new tokens, remembers them, and returns the logits after the last (batch, vocab), or after each."""
        if self._applies(ids, cache):
            with self._lock:
                compiled = self._ready()
                if compiled is not None:
                    return compiled.step(ids, cache, mask=mask, last=last)
        return Decoder.step(self.decoder, ids, cache, mask=mask, last=last)

    def _applies(self, ids: Tensor, cache: KeyValueCache) -> bool:
        return (
            self.reason is None  # why the decoder cannot be compiled
            and cache.length > 0
            and ids.numel() <= ROWS
            and ids.device.type == "cpu"
            and not torch.is_grad_enabled()
            and not any(self._hooks)
            and (self.decoder.config.stack.block.cross is None or cache.cross[0].length > 0)
        )

    def _ready(self) -> Compiled | None:
        from headway.engine.decoding import Compiled
        from headway.engine.plan import NotPlannedError, plan

        if self._compiled is None or self._compiled.outdated():
            try:
                self._compiled = Compiled(self.decoder, plan(self.decoder))
            except NotPlannedError as error:
                self.reason = str(error)
                return None
        return self._compiled
