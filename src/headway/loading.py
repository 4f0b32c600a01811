"""How a model is opened: a folder of any sort, a hub id, word vectors, an adapter with the model it was trained on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from headway.bundle import TASK_FILE, Bundle
from headway.checkpoints import TensorFiles, read_json, resolve
from headway.checkpoints.assign import assign
from headway.checkpoints.json_tensors import json_model, read_json_tensors
from headway.checkpoints.rules import to_ours, to_theirs
from headway.checkpoints.saved import ADAPTER, is_weight_file, verified
from headway.checkpoints.word2vec import is_word2vec, read_word2vec
from headway.distributed import pick_device
from headway.engine import weights as storage
from headway.engine.int8 import quantise
from headway.errors import CheckpointError, ConfigError, HeadwayError
from headway.families import GLINER_FILE
from headway.families import find as family_named
from headway.families.dialect import architecture_of, rules_of
from headway.families.family import Keys
from headway.files import is_present
from headway.generation.defaults import KEYS as GENERATION_KEYS
from headway.models.build import build, tensor_names
from headway.models.config import layer_count
from headway.models.dropout_rates import with_dropout
from headway.models.ensemble import network_of
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.printable import printable
from headway.validation import from_dict

if TYPE_CHECKING:
    from headway.tasks.task import Task

ADAPTER_FILE = "adapter_config.json"  # of a folder in the layout of PEFT, which names its base model


def load(
    name: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device = "cpu",
    weights: str | None = None,
    group: int | None = None,
    verify: bool = True,
) -> Bundle:
    """Loads a model folder (or a hub id, or a file of word vectors in word2vec's formats). The weights keep the file's
    data type unless `weights` (fp32, bf16, fp16 or int8, the last with one scale for about `group` inputs, 0: for a
    whole row) or torch's `dtype` is given. `device` is cpu, cuda, cuda:1, mps or auto (an accelerator if there is one).
    The files of a model that was saved here are compared with their checksums, unless `verify` is False.

    >>> model = headway.load("weather")  # the folder of a run
    >>> model(["what a fine day", "rain again today"])[1]["label"]
    'bad'
    """
    device = pick_device(str(device))
    if is_word2vec(Path(name)):  # its words keep their case
        from headway.tasks.vectors import Vectors

        task, vectors = Vectors.from_words(*read_word2vec(Path(name)), lowercase=False)
        return Bundle(cast(Any, vectors.to(device)), "headway", Processor(task.tokenizer), task=task)
    folder, options = resolve(name), {"dtype": dtype, "device": device, "weights": weights, "group": group}
    with verified(folder, verify=verify):
        if is_present(folder / ADAPTER_FILE) and not is_present(folder / "config.json"):
            from headway.training.peft_files import load_merged

            return load_merged(folder, lambda base: load(base, verify=verify, **cast(Any, options)))
        return _load(folder, **cast(Any, options))


def _load(
    folder: Path, *, dtype: str | torch.dtype | None, device: torch.device, weights: str | None, group: int | None
) -> Bundle:
    foreign, tensors = open_folder(folder)
    keys = Keys(foreign)
    keys.ignore("quantization_config", *GENERATION_KEYS)
    found = storage.weights_from_config(foreign)
    wanted = storage.requested_weights(weights, dtype=dtype, group=group, found=found)
    if isinstance(wanted, storage.Int8) and found not in (None, wanted):
        raise ConfigError(f"{folder}: the weights are {found} already; start from the model they were made of")
    kind = family_named(keys.get("model_type", str))
    keys.file = kind.config_file
    config = kind.read(keys, architecture_of(keys, kind))
    keys.done()
    for note in [] if is_present(folder / TASK_FILE) else keys.notes:  # of a model trained here it was said before
        warnings.warn(printable(note), stacklevel=3)
    config = with_dropout(kind.infer_from_tensors(config, list(tensors)), _saved_rates(folder))
    if layer_count(config) > len(tensors):  # each layer has some; building thousands to find them missing is slow
        raise CheckpointError(
            f"{folder}: config.json says {layer_count(config)} layers, the file has {len(tensors)} tensors"
        )
    model = build(config, device="meta")
    if found is not None:
        quantise(model, group=found.group)
    rules = rules_of(kind, config, names=list(tensors))
    try:
        state = to_ours(tensors, rules, tensor_names(model))
        if found is not None:
            state = {name: tensor.contiguous() for name, tensor in state.items()}
        if found is not None and wanted not in (None, found):
            model, state = build(config, device="meta"), storage.dequantise_state(state)
        floats = wanted if wanted is None or isinstance(wanted, torch.dtype) else torch.float32
        assign(model, state, dtype=floats, device=device)
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    published = tensors.dtypes if isinstance(tensors, TensorFiles) else ()
    storage.convert_weights(model, None if wanted == found else wanted, published=published)
    processor = Processor.load(folder, image_channels=model.image_channels, audio=model.inputs == "audio")
    if processor.tokenizer_error is not None:
        warnings.warn(printable(f"loaded without a tokenizer: {processor.tokenizer_error}"), stacklevel=2)
    bundle = Bundle(model.eval(), kind.name, processor, task=saved_task(folder, processor.tokenizer))
    if bundle.task is not None:
        bundle.task.use_processor(processor)
    bundle.set_folder(folder, foreign)
    return bundle


def as_bundle(model: str | Path | Bundle, *, device: str | torch.device | None = None) -> Bundle:
    """The model, loaded on `device` (default: cpu) unless it is loaded already."""
    if not isinstance(model, Bundle):
        return load(model, device=device or "cpu")
    if device is not None:
        raise ConfigError(f"device: the model is loaded already, on {model.device}; give it to headway.load instead")
    return model


def open_folder(folder: Path) -> tuple[dict[str, Any], Mapping[str, Tensor]]:
    """(config.json, tensors) of a model folder; a tensor is read when it is used."""
    if is_present(folder / GLINER_FILE):
        config = read_json(folder / GLINER_FILE)
        return config | {"model_type": config.get("model_type") or "gliner"}, TensorFiles(folder)
    if is_present(folder / "config.json"):
        config = read_json(folder / "config.json")
        return config, _adapted(folder, config) if has_adapter_alone(folder) else TensorFiles(folder)
    published = json_model(folder)
    if published is None:
        raise CheckpointError(f"{folder}: no config.json, so this is not a model folder")
    return read_json_tensors(published)


def has_adapter_alone(folder: Path) -> bool:
    """Whether it is a run that kept its adapter and no other weights."""
    adapter = is_present(folder / ADAPTER / ADAPTER_FILE)
    return adapter and not any(is_weight_file(path.name) for path in folder.iterdir())


def _adapted(folder: Path, foreign: dict[str, Any]) -> dict[str, Tensor]:
    """The tensors of such a run, by their names in its files: those of the model that it started from, with the adapter
    merged. What that model does not have, as a new head, is in the adapter."""
    from headway.training.lora import merge_lora
    from headway.training.peft_files import base_of, open_lora

    keys = Keys(foreign)
    keys.ignore("quantization_config", *GENERATION_KEYS)
    kind = family_named(keys.get("model_type", str))
    config = kind.read(keys, architecture_of(keys, kind))
    base = base_of(folder / ADAPTER)
    try:
        given = network_of(load(base, dtype="float32").model).state_dict()
    except HeadwayError as error:
        raise CheckpointError(
            f"{folder}: keeps its adapter alone, and the model that it started from cannot be opened: {error}"
        ) from error
    model = build(config)
    own = model.state_dict()
    same = {name: given[name] for name, tensor in own.items() if name in given and given[name].shape == tensor.shape}
    model.load_state_dict({**{name: torch.zeros_like(tensor) for name, tensor in own.items()}, **same})
    rules = rules_of(kind, config)
    open_lora(model, folder / ADAPTER, rules=rules)
    merge_lora(model)
    merged = model.state_dict()
    return to_theirs({name: merged[name] for name in tensor_names(model)}, rules)


def _saved_rates(folder: Path) -> dict[str, float]:
    """The dropout rates that config.json does not express, of a model trained here."""
    kept = read_json(folder / TASK_FILE) if is_present(folder / TASK_FILE) else {}
    return from_dict(dict[str, float], kept.get("dropout", {}), path=f"{folder / TASK_FILE}: dropout")


def saved_task(folder: Path, tokenizer: Tokenizer | None) -> Task | None:
    """The task of a model folder, without its processor of pictures or sound."""
    if not is_present(folder / TASK_FILE):
        return None
    from headway import tasks

    kept = read_json(folder / TASK_FILE)
    try:
        kind = tasks.find(kept["task"]).variant(kept["options"])
        return kind.from_dict(kept["options"], tokenizer)
    except (KeyError, TypeError) as error:
        raise CheckpointError(f"{folder / TASK_FILE}: damaged: {error}") from error
