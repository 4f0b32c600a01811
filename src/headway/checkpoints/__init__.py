"""Checkpoint files ⇄ tensors: safetensors, JSON and the Hugging Face hub. Independent of models and families.

Names are imported on first use: what reads only JSON and the headers of tensor files does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headway.checkpoints.files import TensorFiles
    from headway.checkpoints.header import TensorHeader, TensorInfo, read_header, read_json
    from headway.checkpoints.hub import resolve
    from headway.checkpoints.save import save_tensor_file, save_tensors
    from headway.checkpoints.text_files import save_bytes, save_json, save_text

__all__ = [
    "TensorFiles",
    "TensorHeader",
    "TensorInfo",
    "read_header",
    "read_json",
    "resolve",
    "save_bytes",
    "save_json",
    "save_tensor_file",
    "save_tensors",
    "save_text",
]

_MODULES = {"TensorFiles": "files", "resolve": "hub"}
_MODULES |= dict.fromkeys(("TensorHeader", "TensorInfo", "read_header", "read_json"), "header")
_MODULES |= dict.fromkeys(("save_tensor_file", "save_tensors"), "save")
_MODULES |= dict.fromkeys(("save_bytes", "save_json", "save_text"), "text_files")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"headway.checkpoints.{_MODULES[name]}"), name)
