"""A decoder's `step`, fast. It takes the method's place on the decoder it is made for, gives the same
logits, writes to the same cache, and leaves to the method whatever it does not do itself: reading a prompt, large
batches, gradients, a model on another device, and a step that somebody listens to.

Compiled code is loaded when the first step wants it, so that it delays no first token.
"""

from __future__ import annotations

import copy
import threading
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headway.engine.bf16 import Bf16Linear
from headway.engine.compiler import announce, can_compile
from headway.engine.huge_pages import lies_in, settle
from headway.engine.int8 import Int8Linear
from headway.layers.cache import KeyValueCache
from headway.layers.linear import Linear
from headway.memory import keep_freed_memory
from headway.models.decoder import Decoder
from headway.models.heads import LanguageHead

if TYPE_CHECKING:
    from headway.engine.decoding import Compiled

MATRICES = (Linear, Bf16Linear, Int8Linear)


class FastStep:
    def __init__(self, decoder: Decoder):
        self.decoder = decoder
        self.reason = None if can_compile() else "numba is not installed (pip install headway[fast])"
        self._lock = threading.Lock()
        self._compiled: Compiled | None = None
        self._cache: weakref.ref[KeyValueCache] | None = None  # of the step before
        self._listeners: list[dict[int, Any]] = []
        self._memory: Tensor | None = None  # where the weights were moved to

    def __deepcopy__(self, memo: dict[int, Any]) -> FastStep:
        return FastStep(copy.deepcopy(self.decoder, memo))  # addresses are of one model only

    def __call__(self, ids: Tensor, cache: KeyValueCache, *, mask: Tensor | None = None, last: bool = True) -> Tensor:
        """Feeds new tokens, remembers them, and returns the logits after the last (batch, vocab), or after each."""
        with self._lock:
            if self._applies(ids, cache):
                self._look_over(cache)
                compiled = self._compiled
                if compiled is not None and ids.numel() <= compiled.most and not any(self._listeners):
                    return compiled.step(ids, cache, mask=mask, last=last)
        return Decoder.step(self.decoder, ids, cache, mask=mask, last=last)

    def _applies(self, ids: Tensor, cache: KeyValueCache) -> bool:
        return (
            self.reason is None  # why the decoder cannot be compiled
            and cache.length > 0
            and ids.device.type == "cpu"
            and not torch.is_grad_enabled()
            and (self.decoder.config.stack.block.cross is None or cache.cross[0].length > 0)
        )

    def _look_over(self, cache: KeyValueCache) -> None:
        """What is compiled is compared with the model when another text begins, not at every token of it."""
        if self._cache is not None and self._cache() is cache:
            return
        announce()
        from headway.engine.decoding import Compiled
        from headway.engine.lowering import NotPlannedError, plan

        self._cache = weakref.ref(cache)
        self._listeners = [
            hooks for part in self.decoder.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)
        ]
        if self._compiled is None or self._compiled.outdated():
            try:
                plan(self.decoder)  # refuses before anything is moved
                self._settle()
                keep_freed_memory()
                self._compiled = Compiled(self.decoder, plan(self.decoder))
            except NotPlannedError as error:
                self.reason, self._compiled = str(error), None

    def _settle(self) -> None:
        """Moves the matrices that every token reads."""
        head, read = self.decoder.head, [part for part in self.decoder.stack.modules() if isinstance(part, MATRICES)]
        assert isinstance(head, LanguageHead)
        words: nn.Module = self.decoder.embedding.tokens if head.project is None else head.project
        if not all(lies_in(part, self._memory) for part in (*read, words)):
            self._memory = settle([*read, words])
