"""LoRA adapters on disk in the layout of the PEFT library, under the module names of the published model.

A fused layer of theirs (q, k and v in one matrix) has one adapter: the A of its parts stacked, their B on a diagonal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn

from headway.checkpoints import TensorFiles, read_json, save_json, save_tensor_file
from headway.checkpoints.rules import AnyRule, Rule, expand, same
from headway.checkpoints.saved import save_folder
from headway.errors import CheckpointError, ConfigError
from headway.models.ensemble import members_of
from headway.training.lora import LoRALinear, adapters, insert_adapters, merge_lora
from headway.validation import Check, between, from_dict

CONFIG_FILE, TENSOR_FILE, PREFIX = "adapter_config.json", "adapter_model.safetensors", "base_model.model."
SUPPORTED = {"peft_type": "LORA", "bias": "none", "use_rslora": False, "use_dora": False}
KNOWN = SUPPORTED.keys() | {"r", "lora_alpha", "lora_dropout", "rank_pattern", "alpha_pattern", "init_lora_weights"}
# Keys without an effect on an adapter that is opened: the tensors' names say which layers are adapted.
IGNORED = {
    *("target_modules", "exclude_modules", "modules_to_save", "layers_to_transform", "layers_pattern"),
    *("base_model_name_or_path", "revision", "task_type", "auto_mapping", "peft_version", "inference_mode"),
    *("fan_in_fan_out", "loftq_config", "eva_config", "corda_config", "lora_ga_config", "runtime_config"),
    *("megatron_config", "megatron_core", "qalora_group_size"),
}
PLAIN_INITS = (True, False, None, "gaussian", "eva", "orthogonal")  # the others change the weights of the base model


MODULE_NAME = re.compile(r"\^?[\w.]+")
MODULE_NAMES = Check("an object with names of modules as keys", lambda names: all(map(MODULE_NAME.fullmatch, names)))


class HasModel(Protocol):
    @property
    def model(self) -> Any: ...

    def tensor_rules(self) -> Sequence[AnyRule]: ...


Adaptable = TypeVar("Adaptable", bound=HasModel)
A, B, WEIGHT = ".lora_A.weight", ".lora_B.weight", ".weight"


@torch.no_grad()
def save_lora(
    model: nn.Module, folder: str | os.PathLike[str], *, base: str = "", rules: Sequence[AnyRule] | None = None
) -> None:
    """Write the adapters and the other trainable parameters of a model that `add_lora` has adapted.

    `base` is the name of the model without adapters, `rules` its tensor names in the published layout (by default
    Headway's own).
    """
    found = adapters(model)
    if not found:
        raise ConfigError("the model has no LoRA adapters to save")
    values = {name.replace(".base.", "."): tensor for name, tensor in model.named_parameters() if ".lora_" not in name}
    tensors: dict[str, Tensor] = {}
    ranks: dict[str, int] = {}
    beside: set[str] = set()
    transposed: set[bool] = set()
    expanded = _expanded(rules, values)
    for rule in expanded:
        parts = [found[name.removesuffix(WEIGHT)] for name in rule.ours if name.removesuffix(WEIGHT) in found]
        if parts and rule.ours[0].endswith(WEIGHT):
            if len(parts) < len(rule.ours):
                raise CheckpointError(f"{rule.theirs} has the parts {', '.join(rule.ours)}; adapt all of them or none")
            target = rule.theirs.removesuffix(WEIGHT)
            tensors[target + A] = torch.cat([part.lora_A.weight for part in parts])
            tensors[target + B] = torch.block_diag(*(part.lora_B.weight for part in parts))
            ranks[target] = len(tensors[target + A])
            transposed.add(_is_transposed(rule, parts[0]))
        elif any(values[name].requires_grad for name in rule.ours):
            tensors[rule.theirs] = rule.to_theirs([values[name] for name in rule.ours])
            beside.add(rule.theirs.rpartition(".")[0])
    tensors |= _rest_of_modules(beside - {""}, saved=tensors, rules=expanded, values=values)
    one = next(iter(found.values()))
    other = {target: rank for target, rank in ranks.items() if rank != one.rank}
    config = SUPPORTED | {
        "base_model_name_or_path": base,
        "r": one.rank,
        "lora_alpha": one.alpha,
        "lora_dropout": one.dropout,
        "rank_pattern": other,
        "alpha_pattern": {target: one.alpha / one.rank * rank for target, rank in other.items()},
        "target_modules": list(ranks),
        "modules_to_save": sorted(beside - {""}) or None,
        "fan_in_fan_out": transposed == {True},
        "inference_mode": True,
    }
    written = {PREFIX + name: tensor for name, tensor in tensors.items()}
    with save_folder(folder) as work:
        save_tensor_file(work / TENSOR_FILE, written, metadata={"format": "pt"})
        save_json(work / CONFIG_FILE, config)


@torch.no_grad()
def open_lora(model: nn.Module, folder: str | os.PathLike[str], *, rules: Sequence[AnyRule] | None = None) -> list[str]:
    """Add the adapters of a folder to a model and load the parameters saved beside them. Returns the adapted layers.

    `rules` are the model's tensor names in the published layout (by default Headway's own).
    """
    path = Path(folder) / CONFIG_FILE
    config = _read_config(path)
    files = TensorFiles(Path(folder) / TENSOR_FILE)
    state = {name.removeprefix(PREFIX): files[name] for name in files.names}
    parameters = dict(model.named_parameters())
    by_theirs = {rule.theirs: rule for rule in _expanded(rules, parameters)}
    new: dict[str, tuple[nn.Linear, Tensor, Tensor, float]] = {}  # layer, A, B, alpha
    beside: dict[str, Tensor] = {}
    for name, tensor in state.items():
        target = name.removesuffix(A).removesuffix(B)
        rule = by_theirs.get(name if target == name else target + WEIGHT)
        if rule is None:
            raise CheckpointError(f"the adapter does not fit this model: the model does not have {name!r}")
        if target == name:
            beside |= dict(zip(rule.ours, rule.to_ours(tensor), strict=True))
        elif name.endswith(A):
            rank = _of_module(config["rank_pattern"], target, config["r"])
            alpha = _of_module(config["alpha_pattern"], target, config["lora_alpha"])
            if len(tensor) != rank:
                raise CheckpointError(f"{files.path}: {name!r} has rank {len(tensor)}, but {path.name} says {rank}")
            if target + B not in state:
                raise CheckpointError(f"{files.path}: {target + B!r} is missing")
            for ours, b in zip(rule.ours, state[target + B].chunk(len(rule.ours)), strict=True):
                layer = model.get_submodule(ours.removesuffix(WEIGHT))
                if not isinstance(layer, nn.Linear):
                    raise CheckpointError(f"the adapter does not fit this model: {name!r} is not of a linear layer")
                _require_shape(name, tensor, (rank, layer.in_features))
                _require_shape(target + B, b, (layer.out_features, rank))
                new[ours.removesuffix(WEIGHT)] = layer, tensor, b, alpha
    for name, tensor in beside.items():
        _require_shape(name, tensor, tuple(parameters[name].shape))
    inserted = {name: _filled(*parts, dropout=config["lora_dropout"]) for name, parts in new.items()}
    insert_adapters(model, inserted, trained=beside)
    for name, tensor in beside.items():
        parameters[name].copy_(tensor)
    head: Any = getattr(model, "output_head", None)
    if members_of(model) and any(parameters[name] is head.project.weight for name in beside):
        cast(Any, model).remove_members()  # a new head was trained without them
    return list(new)


def load_merged(folder: Path, load: Callable[[str], Adaptable]) -> Adaptable:
    """Load the model that an adapter folder names, and merge the adapters into its weights."""
    base = base_of(folder)
    bundle = load(base)
    try:
        open_lora(bundle.model, folder, rules=bundle.tensor_rules())
    except CheckpointError as error:
        raise CheckpointError(f"{folder}: {error} (of {base})") from error
    merge_lora(bundle.model)
    return bundle


def base_of(folder: Path) -> str:
    """The model that the adapters of a folder are for: a folder or a hub id."""
    path = folder / CONFIG_FILE
    base = read_json(path).get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise CheckpointError(f"{path}: base_model_name_or_path does not name the model that the adapter is for")
    return base


def _read_config(path: Path) -> dict[str, Any]:
    config = read_json(path)
    for key, value in SUPPORTED.items():
        if config.get(key, value) != value:
            raise CheckpointError(f"{path}: {key} = {config[key]!r} is not supported, only {value!r}")
    if (init := config.get("init_lora_weights")) not in PLAIN_INITS:
        raise CheckpointError(
            f"{path}: init_lora_weights = {init!r} changes the base model; convert the adapter to plain LoRA with PEFT "
            "(save_pretrained with path_initial_model_for_weight_conversion)"
        )
    for key in sorted(config.keys() - KNOWN - IGNORED):
        if config[key]:
            raise CheckpointError(f"{path}: {key} = {config[key]!r} is not supported")
    rank = config.get("r")
    kinds = {
        "r": Annotated[int, between(1)],
        "lora_alpha": float,
        "lora_dropout": float,
        "rank_pattern": Annotated[dict[str, int], MODULE_NAMES],
        "alpha_pattern": Annotated[dict[str, float], MODULE_NAMES],
    }
    defaults: dict[str, Any] = {"lora_alpha": rank, "lora_dropout": 0.0, "rank_pattern": {}, "alpha_pattern": {}}
    given = {key: config.get(key) if config.get(key) is not None else defaults.get(key) for key in kinds}
    return {key: from_dict(kind, given[key], path=f"{path}: {key}") for key, kind in kinds.items()}


def _expanded(rules: Sequence[AnyRule] | None, names: Mapping[str, Tensor]) -> list[Rule]:
    return expand([same(name, name) for name in names] if rules is None else rules, names)


def _rest_of_modules(
    modules: set[str], *, saved: Mapping[str, Tensor], rules: Sequence[Rule], values: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The other tensors of `modules`, which PEFT reads whole."""
    inside = tuple(f"{module}." for module in modules)
    rest = [rule for rule in rules if rule.theirs.startswith(inside) and rule.theirs not in saved]
    return {rule.theirs: rule.to_theirs([values[name] for name in rule.ours]) for rule in rest}


def _of_module(patterns: Mapping[str, Any], module: str, default: Any) -> Any:
    """The value of the first pattern that is the name of the module (with ^ in front) or its end after a dot."""
    found = (value for key, value in patterns.items() if f".{module}".endswith(f".{key}") or key == f"^{module}")
    return next(found, default)


def _is_transposed(rule: Rule, part: LoRALinear) -> bool:
    """Whether their matrix is the transpose of ours stacked by rows; an error if it is neither."""
    rows, columns = part.base.weight.shape
    probe = torch.arange(len(rule.ours) * rows * columns, dtype=torch.float64).view(-1, columns)
    theirs = rule.to_theirs(list(probe.chunk(len(rule.ours))))
    for transposed, whole in ((False, probe), (True, probe.t())):
        if torch.equal(theirs, whole):
            return transposed
    raise CheckpointError(f"{rule.theirs}: an adapter of this layer cannot be written in the layout of PEFT")


def _filled(layer: nn.Linear, a: Tensor, b: Tensor, alpha: float, *, dropout: float) -> LoRALinear:
    adapter = LoRALinear(layer, rank=len(a), alpha=alpha, dropout=dropout)
    adapter.lora_A.weight.copy_(a)
    adapter.lora_B.weight.copy_(b)
    return adapter


def _require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        found = f"{name!r} is {tuple(tensor.shape)} where the model has {shape}"
        raise CheckpointError(f"the adapter does not fit this model: {found}")
