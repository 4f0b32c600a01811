"""Nested Python values as JSON and tensors, so that a state is never a pickle.

A tensor becomes {"$tensor": name}, named after its place; two names for one tensor keep one entry, so ties survive.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import TrainingError

Tensors = dict[str, Tensor]


class Shelf:
    """Tensors by name, each storage once, ready for a safetensors file."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def put(self, tensor: Tensor, name: str) -> str:
        """The name under which the tensor stands: `name`, or an earlier one of the same tensor."""
        tensor = tensor.detach()
        standing = self._names.setdefault(_identity(tensor), name)
        if standing == name:
            view = tensor.untyped_storage().nbytes() != tensor.nbytes
            own = tensor.clone(memory_format=torch.contiguous_format) if view else tensor.contiguous()
            self.tensors[name] = own.cpu()
        return standing

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


def split(value: Any, name: str, shelf: Shelf) -> Any:
    """The JSON form of `value`; its tensors go onto the shelf."""
    if isinstance(value, Tensor):
        return {"$tensor": shelf.put(value, name)}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: split(item, f"{name}.{key}", shelf) for key, item in value.items()}
        return {"$items": [[key, split(item, f"{name}.{key}", shelf)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [split(item, f"{name}.{index}", shelf) for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TrainingError(f"{name}: a {type(value).__name__} cannot be saved; only tensors and plain values can")


def join(form: Any, tensors: Tensors) -> Any:
    """The value that `split` took apart."""
    if isinstance(form, list):
        return [join(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    if "$tensor" in form:
        return tensors[form["$tensor"]]
    if "$tuple" in form:
        return tuple(join(item, tensors) for item in form["$tuple"])
    if "$items" in form:
        return {key: join(item, tensors) for key, item in form["$items"]}
    return {key: join(item, tensors) for key, item in form.items()}


def ties(named: Tensors) -> list[list[str]]:
    """Groups of names that share one tensor."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in named.items():
        groups.setdefault(_identity(tensor), []).append(name)
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    if tensor.numel() == 0:
        return (id(tensor),)
    return tensor.data_ptr(), tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride()
