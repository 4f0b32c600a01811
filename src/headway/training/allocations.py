"""Allocations of tensors, recorded by a dispatch mode: every storage that an operation returns, also in the backward
pass and in the optimisers. What a kernel allocates for itself while it runs is not seen.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Event = tuple[int, int]  # number of a storage; its bytes when it is allocated, -1 when it is freed
FREED = -1
Result = TypeVar("Result")


@dataclass
class AllocationSegment:
    """The events of a part of a step. Storages are numbered from 0 in the order of their allocation."""

    events: list[Event] = field(default_factory=list)
    count: int = 0  # of storages

    def allocate(self, size: int) -> int:
        self.events.append((self.count, size))
        self.count += 1
        return self.count - 1

    @property
    def kept(self) -> dict[int, int]:
        """Bytes by number of the storages that are not freed in it."""
        sizes = dict[int, int]()
        for number, size in self.events:
            if size == FREED:
                del sizes[number]
            else:
                sizes[number] = size
        return sizes

    def without_kept(self) -> AllocationSegment:
        """The same with what it keeps freed at once, as gradients are that are added to others."""
        kept, events = self.kept, list[Event]()
        for number, size in self.events:
            events.append((number, size))
            if number in kept:
                events.append((number, FREED))
        return AllocationSegment(events, self.count)

    def scaled(self, other: AllocationSegment, factor: float) -> AllocationSegment:
        """This segment + factor · (other - this), storage by storage. If the two ran different operations, the sum of
        what they keep and the peak of what they free again are extrapolated instead."""
        if self._operations() == other._operations():
            sizes = [(one, more) for (_, one), (_, more) in zip(self.events, other.events, strict=True)]
        else:
            kept, keeps = self.kept, [sum(each.kept.values()) for each in (self, other)]
            peaks = [live_peak(each.events) - held for each, held in zip((self, other), keeps, strict=True)]
            rates = {True: keeps[1] / max(1, keeps[0]), False: peaks[1] / max(1, peaks[0])}
            sizes = [(one, round(one * rates[number in kept])) for number, one in self.events]
        events = [
            (number, one if one == FREED else max(0, round(one + factor * (more - one))))
            for (number, _), (one, more) in zip(self.events, sizes, strict=True)
        ]
        return AllocationSegment(events, self.count)

    def _operations(self) -> list[tuple[int, bool]]:
        return [(number, size == FREED) for number, size in self.events]


class AllocationLog(TorchDispatchMode):
    """Records allocations while it is active. Storages of `existing` tensors are there before."""

    def __init__(self, existing: Iterable[Tensor]) -> None:
        super().__init__()
        self._known: dict[int, Any] = {}  # weak references by the address of a storage
        self._segment: AllocationSegment | None = None
        for tensor in existing:
            self._add(tensor)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, so that the mode does not have to import torch's compiler (see `eager`)."""
        return False

    def recorded(self, action: Callable[[], Result]) -> tuple[AllocationSegment, Result]:
        """What an action allocates, and its result."""
        self._segment = segment = AllocationSegment()
        try:
            return segment, action()
        finally:
            self._segment = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self._add(leaf)
        return out

    def _add(self, tensor: Tensor) -> None:
        storage, segment = tensor.untyped_storage(), self._segment
        key = storage._cdata
        if key in self._known:
            return
        number = segment.allocate(storage.nbytes()) if segment is not None else 0

        def freed(_: Any) -> None:
            del self._known[key]
            if segment is not None and segment is self._segment:
                segment.events.append((number, FREED))

        self._known[key] = weakref.ref(storage, freed)


def live_peak(events: Iterable[Event]) -> int:
    """The most bytes that are allocated at a time."""
    sizes, live, peak = dict[int, int](), 0, 0
    for number, size in events:
        if size == FREED:
            live -= sizes.pop(number)
        else:
            sizes[number] = size
            live += size
            peak = max(peak, live)
    return peak
