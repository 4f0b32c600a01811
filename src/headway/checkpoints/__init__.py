"""Checkpoint files ⇄ tensors: safetensors, JSON and the Hugging Face hub. Independent of models and families."""

from headway.checkpoints.files import TensorFiles
from headway.checkpoints.header import Header, TensorInfo, read_header, read_json
from headway.checkpoints.hub import resolve
from headway.checkpoints.save import save_bytes, save_json, save_tensor_file, save_tensors, save_text

__all__ = [
    "TensorFiles",
    "Header",
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
