"""Bitwise comparison of two training states or logs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.training.folder import Entry

CLOCK = ("speed", "waiting", "seconds")  # entries of a log that depend on the clock


def first_difference(left: Any, right: Any, name: str = "") -> str | None:
    """A description of the first difference, or None. Tensors are compared bytewise, so NaN equals itself."""
    if isinstance(left, Tensor) and isinstance(right, Tensor):
        return _tensors(left, right, name)
    if isinstance(left, dict) and isinstance(right, dict):
        if list(left) != list(right):
            return f"{name}: {_key_difference(left, right)}"
        pairs = [(f"{name}.{key}" if name else str(key), left[key], right[key]) for key in left]
    elif type(left) is not type(right):
        return f"{name}: {type(left).__name__} and {type(right).__name__}"
    elif isinstance(left, list | tuple):
        if len(left) != len(right):
            return f"{name}: {len(left)} and {len(right)} entries"
        pairs = [(f"{name}[{index}]", *pair) for index, pair in enumerate(zip(left, right, strict=True))]
    else:
        return None if left == right else f"{name}: {left!r} and {right!r}"
    found = (first_difference(one, other, place) for place, one, other in pairs)
    return next((difference for difference in found if difference is not None), None)


def without_clock(history: list[Entry]) -> list[Entry]:
    return [{key: value for key, value in entry.items() if key not in CLOCK} for entry in history]


def _tensors(left: Tensor, right: Tensor, name: str) -> str | None:
    if left.dtype != right.dtype or left.shape != right.shape:
        return f"{name}: {left.dtype} {tuple(left.shape)} and {right.dtype} {tuple(right.shape)}"
    differ = (_bytes(left) != _bytes(right)).any(-1)
    if not differ.any():
        return None
    apart = (left.double() - right.double()).abs().max()
    return f"{name}: {int(differ.sum())} of {left.numel()} values differ, by up to {float(apart):.3g}"


def _bytes(tensor: Tensor) -> Tensor:
    """(value, byte)"""
    return tensor.detach().cpu().contiguous().reshape(-1, 1).view(torch.uint8)


def _key_difference(left: dict[Any, Any], right: dict[Any, Any]) -> str:
    unmatched = next((key for key in [*left, *right] if (key in left) != (key in right)), None)
    return "the same keys in another order" if unmatched is None else f"only one of the two has {unmatched!r}"
