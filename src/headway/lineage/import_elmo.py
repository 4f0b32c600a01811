"""ELMo's published files (bilm-tf): a folder, or the folder of a file, with options.json and weights in HDF5 → a model
folder. Needs h5py (pip install headway[elmo])."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from headway.bundle import Bundle
from headway.checkpoints.assign import assign
from headway.checkpoints.header import read_json
from headway.checkpoints.rules import to_ours
from headway.errors import CheckpointError, ConfigError
from headway.families import elmo
from headway.files import is_present, open_file
from headway.models.build import build, tensor_names
from headway.preprocess.character_text import CharacterTokenizer
from headway.preprocess.processor import Processor

OPTIONS = "options.json"
WEIGHTS = ("*weights*.hdf5", "*weights*.h5")
MIX = "stack.mix."  # learned with a head, so the published files have none


def weights_file(folder: Path) -> Path | None:
    """The weights in a folder of bilm-tf's files; None if it is none."""
    if not folder.is_dir() or not is_present(folder / OPTIONS):
        return None
    found = sorted(path for pattern in WEIGHTS for path in folder.glob(pattern))
    return found[0] if found else None


def import_elmo(folder: Path) -> Bundle:
    """The model of a folder; its layers are mixed evenly until a head is trained on it."""
    path = weights_file(folder)
    if path is None:
        raise CheckpointError(f"{folder}: no {OPTIONS} with weights in HDF5 ({', '.join(WEIGHTS)})")
    config = elmo.read_options(read_json(folder / OPTIONS), file=str(folder / OPTIONS))
    model = build(config, device="meta")
    try:
        wanted = [name for name in tensor_names(model) if not name.startswith(MIX)]
        state = to_ours(read_hdf5(path), elmo.rules(config), wanted)
        state |= {f"{MIX}weights": torch.zeros(config.stack.layers + 1), f"{MIX}scale": torch.ones(1)}
        assign(model, state, dtype=torch.float32, device=torch.device("cpu"))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    tokenizer = CharacterTokenizer(config.embedding.longest)
    return Bundle(cast(Any, model.eval()), "headway", Processor(tokenizer))


def read_hdf5(path: Path) -> Mapping[str, Tensor]:
    """Every array of the file, by its path in it."""
    if importlib.util.find_spec("h5py") is None:
        raise ConfigError(f"{path}: reading HDF5 needs h5py (pip install headway[elmo])")
    import h5py

    out: dict[str, Tensor] = {}

    def collect(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            if item.dtype.kind != "f" or item.external or item.is_virtual:
                raise CheckpointError(f"{name} is no array of numbers in this file")
            out[name] = torch.from_numpy(np.asarray(item, dtype=np.float32))

    try:
        with open_file(path) as file, h5py.File(file, "r") as content:
            content.visititems(collect)
    except (OSError, RuntimeError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: not a readable HDF5 file ({error}); fetch it again") from error
    return out
