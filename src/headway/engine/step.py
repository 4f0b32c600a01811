"""A compiled replacement for the `step` method of one decoder. It returns the same logits and writes to the same cache.

It calls the plain method for long prompts, large batches, gradients, another device, and whenever a forward hook is
registered. Compiled code is loaded at the first step after a prompt, so it does not delay the first token; from then on
it reads short prompts too.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from headway.engine import prefill
from headway.engine.bf16 import Bf16Linear
from headway.engine.compiler import can_compile, log_compilation
from headway.engine.half_copies import HalfCopies
from headway.engine.huge_pages import is_stored_in, move_to_huge_pages
from headway.engine.int8 import Int8Linear
from headway.layers.cache import KeyValueCache
from headway.layers.linear import Linear
from headway.memory import keep_freed_memory
from headway.models.decoder import Decoder

if TYPE_CHECKING:
    from headway.engine.decoding import CompiledStep

MATRICES = (Linear, Bf16Linear, Int8Linear)


class FastStep:
    def __init__(self, decoder: Decoder):
        self.decoder = decoder
        self.reason = None if can_compile() else "numba is not installed (pip install headway[fast])"
        self._lock = threading.Lock()
        self._compiled: CompiledStep | None = None
        self._caches: weakref.WeakSet[KeyValueCache] = weakref.WeakSet()  # of earlier steps
        self._hooks: list[dict[int, Any]] = []
        self._memory: Tensor | None = None  # where the weights were moved to
        self._halves = HalfCopies(())

    def __deepcopy__(self, memo: dict[int, Any]) -> FastStep:
        return FastStep(copy.deepcopy(self.decoder, memo))  # a program holds addresses of one model's tensors

    def __call__(
        self, ids: Tensor, cache: KeyValueCache, *, lengths: Sequence[int] | None = None, every: bool = False
    ) -> Tensor:
        """As Decoder.step."""
        if lengths is not None and min(lengths) == ids.shape[1]:
            lengths = None
        with self._lock:
            if lengths is None and self._applies(ids, cache):
                self._refresh(cache)
                compiled = self._compiled
                if compiled is not None and compiled.takes(ids, cache) and not any(self._hooks):
                    return compiled.step(ids, cache, every=every)
        if not every and prefill.applies(self.decoder, ids, lengths):
            return prefill.prefill(self.decoder, ids, cache, lengths)
        return type(self.decoder).step(self.decoder, ids, cache, lengths=lengths, every=every)

    def _applies(self, ids: Tensor, cache: KeyValueCache) -> bool:
        return (
            self.reason is None
            and (self._compiled is not None or min(cache.lengths, default=0) > 0)
            and len(cache) > 0
            and ids.device.type == "cpu"
            and not torch.is_grad_enabled()
            and (self.decoder.config.stack.block.cross is None or cache.cross[0].columns > 0)
        )

    def _refresh(self, cache: KeyValueCache) -> None:
        """Compiles, or checks that what is compiled still fits the model: once per cache, not at every token."""
        if cache in self._caches:
            return
        log_compilation()
        from headway.engine.decoding import CompiledStep
        from headway.engine.lowering import UnsupportedModelError, lower

        self._caches.add(cache)
        self._hooks = [
            hooks for part in self.decoder.modules() for hooks in (part._forward_hooks, part._forward_pre_hooks)
        ]
        if self._compiled is None or self._compiled.is_stale() or not self._halves.are_current():
            try:
                lower(self.decoder)  # raises before anything is moved
                self._halves = HalfCopies(self._matrices())
                if not self._halves:
                    self._move_weights()
                keep_freed_memory()
                self._compiled = CompiledStep(self.decoder, lower(self.decoder, self._halves))
            except UnsupportedModelError as error:
                self.reason, self._compiled = str(error), None

    def _matrices(self) -> list[nn.Module]:
        """Those that a step reads."""
        from headway.engine.lowering import vocabulary_matrix

        matrices: list[nn.Module] = [part for part in self.decoder.stack.modules() if isinstance(part, MATRICES)]
        return [*matrices, vocabulary_matrix(self.decoder)]

    def _move_weights(self) -> None:
        """Moves the matrices into huge pages."""
        matrices = self._matrices()
        if not all(is_stored_in(part, self._memory) for part in matrices):
            self._memory = move_to_huge_pages(matrices)
