"""Nested Python values ⇄ JSON and named tensors, so that a state needs no pickle.

A tensor is replaced by {"$tensor": name}, where the name is its path; tied tensors share one entry and stay tied.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from headway.errors import TrainingError, with_article

Tensors = dict[str, Tensor]


class TensorCollector:
    """Collects tensors by name, each storage once, for a safetensors file."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._names: dict[tuple[Any, ...], str] = {}

    def add(self, tensor: Tensor, name: str) -> str:
        """Add a tensor. Returns its name: `name`, or the earlier name of the same tensor."""
        tensor = tensor.detach()
        stored_name = self._names.setdefault(_identity(tensor), name)
        if stored_name == name:
            view = tensor.untyped_storage().nbytes() != tensor.nbytes
            whole = tensor.clone(memory_format=torch.contiguous_format) if view else tensor.contiguous()
            self.tensors[name] = whole.cpu()
        return stored_name

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors.values())


def flatten(value: Any, name: str, collector: TensorCollector) -> Any:
    """The JSON form of `value`; its tensors are added to the collector."""
    if isinstance(value, Tensor):
        return {"$tensor": collector.add(value, name)}
    if isinstance(value, dict):
        if all(isinstance(key, str) and not key.startswith("$") for key in value):
            return {key: flatten(item, f"{name}.{key}", collector) for key, item in value.items()}
        return {"$items": [[key, flatten(item, f"{name}.{key}", collector)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        items = [flatten(item, f"{name}.{index}", collector) for index, item in enumerate(value)]
        return {"$tuple": items} if isinstance(value, tuple) else items
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TrainingError(f"{name}: {with_article(type(value).__name__)} cannot be saved, only tensors and JSON values")


def unflatten(form: Any, tensors: Tensors) -> Any:
    """The inverse of `flatten`."""
    if isinstance(form, list):
        return [unflatten(item, tensors) for item in form]
    if not isinstance(form, dict):
        return form
    if "$tensor" in form:
        return tensors[form["$tensor"]]
    if "$tuple" in form:
        return tuple(unflatten(item, tensors) for item in form["$tuple"])
    if "$items" in form:
        return {key: unflatten(item, tensors) for key, item in form["$items"]}
    return {key: unflatten(item, tensors) for key, item in form.items()}


def tied_names(named: Tensors) -> list[list[str]]:
    """Groups of names of the same tensor."""
    groups: dict[tuple[Any, ...], list[str]] = {}
    for name, tensor in named.items():
        groups.setdefault(_identity(tensor), []).append(name)
    return sorted(sorted(group) for group in groups.values() if len(group) > 1)


def _identity(tensor: Tensor) -> tuple[Any, ...]:
    if tensor.numel() == 0:
        return (id(tensor),)
    return tensor.data_ptr(), tensor.device, tensor.dtype, tuple(tensor.shape), tensor.stride()
