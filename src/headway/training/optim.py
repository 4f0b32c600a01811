"""Assigns parameters to optimisers, and handles several optimisers as one.

Hidden weight matrices may go to Muon; embeddings, output heads, norms, biases and kernels of other ranks go to AdamW
(Loshchilov & Hutter 2019). Norms, biases and embeddings have no weight decay. `adam` is that of Vaswani et al. 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from headway.errors import CheckpointError, ConfigError
from headway.training.eager import Adam, AdamW, Optimizer
from headway.training.muon import Muon

Kind = Literal["muon", "adamw", "adam"]
Role = Literal["matrix", "weight", "plain"]  # hidden matrix; head or convolution; norm, bias, embedding
Named = list[tuple[str, nn.Parameter]]
ROLES: tuple[Role, ...] = ("matrix", "weight", "plain")
STATE_KEYS = {"muon": ("momentum",), **dict.fromkeys(("adamw", "adam"), ("step", "exp_avg", "exp_avg_sq"))}
BETAS = {"muon": (0.9, 0.95), "adamw": (0.9, 0.95), "adam": (0.9, 0.98)}
FUSED = ("cpu", "cuda", "mps", "xpu")  # devices with a fused kernel
EPS = {"muon": 1e-8, "adamw": 1e-8, "adam": 1e-9}


@dataclass(frozen=True)
class ParameterGroup:
    """A summary of a parameter group for the log."""

    name: str
    lr: float
    weight_decay: float
    parameters: int


class Optimizers:
    """Several optimisers with disjoint parameters, used as one."""

    def __init__(self, parts: dict[str, Optimizer]):
        self.parts = parts
        for group in self._param_groups():
            group["base_lr"] = group["lr"]

    def step(self) -> None:
        for part in self.parts.values():
            part.step()

    def zero_grad(self) -> None:
        for part in self.parts.values():
            part.zero_grad(set_to_none=True)

    def scale_lr(self, factor: float) -> None:
        """Set every learning rate to its base value times `factor`."""
        for group in self._param_groups():
            group["lr"] = group["base_lr"] * factor

    @property
    def groups(self) -> list[ParameterGroup]:
        return [
            ParameterGroup(
                name=f"{name}.{group['name']}",
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                parameters=sum(parameter.numel() for parameter in group["params"]),
            )
            for name, part in self.parts.items()
            for group in part.param_groups
        ]

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if set(state) != set(self.parts):
            raise CheckpointError(
                f"the saved optimisers are {', '.join(sorted(state))}, this run's are {', '.join(sorted(self.parts))}; "
                "resume with the optimiser the run started with"
            )
        for name, part in self.parts.items():
            saved, ours = _param_positions(state[name]["param_groups"]), _param_positions(part.param_groups)
            if saved != ours:
                different = sorted(set(saved) ^ set(ours)) or sorted(key for key in ours if ours[key] != saved[key])
                raise CheckpointError(
                    f"the saved {name} state belongs to other parameters, for example {different[0]!r}; "
                    "resume with the model, frozen parts and adapters the run started with"
                )
        for name, part in self.parts.items():
            parameters = [parameter for group in part.param_groups for parameter in group["params"]]
            _check_state_shapes(name, state[name]["state"], parameters)
            saved_rates = [group["lr"] for group in state[name]["param_groups"]]
            groups = part.state_dict()["param_groups"]
            kept = [{**group, "lr": rate} for group, rate in zip(groups, saved_rates, strict=True)]
            part.load_state_dict({"state": state[name]["state"], "param_groups": kept})

    def _param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts.values() for group in part.param_groups]


def _param_positions(param_groups: list[dict[str, Any]]) -> dict[str, tuple[str, int]]:
    """Group and index of each parameter: optimiser state is stored by index."""
    return {name: (group["name"], place) for group in param_groups for place, name in enumerate(group["param_names"])}


def _check_state_shapes(name: str, state: Mapping[Any, Mapping[str, Tensor]], parameters: list[Tensor]) -> None:
    """Raise if a saved optimiser state does not fit the shapes of the parameters."""
    known = dict(enumerate(parameters))
    for index, saved in state.items():
        expected = None
        if index in known:
            expected = {key: () if key == "step" else known[index].shape for key in STATE_KEYS[name]}
        if expected is None or {key: tuple(tensor.shape) for key, tensor in saved.items()} != expected:
            raise CheckpointError(
                f"the saved state of optimizer.{name}.state.{index} does not fit its parameter; "
                "resume with the model the run started with"
            )


def embedding_weights(model: nn.Module) -> set[Tensor]:
    """The weights of embedding tables; layers tied to one have the same weight."""
    return {module.weight for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)}


def head_parameters(model: nn.Module) -> set[Tensor]:
    """The parameters of modules with `is_head = True`."""
    return {parameter for head in heads(model) for parameter in head.parameters()}


def heads(model: nn.Module) -> list[nn.Module]:
    return [module for module in model.modules() if getattr(module, "is_head", False)]


def roles(model: nn.Module) -> dict[str, Role]:
    """The role of every trainable parameter, by name.

    A tied output layer counts as an embedding.
    """
    embeddings, in_heads = embedding_weights(model), head_parameters(model)
    found: dict[str, Role] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter in embeddings or parameter.ndim < 2 or not name.rpartition(".")[2].startswith("weight"):
            found[name] = "plain"
        elif parameter in in_heads or parameter.ndim != 2:
            found[name] = "weight"
        else:
            found[name] = "matrix"
    return found


def build_optimizers(
    model: nn.Module,
    *,
    kind: Kind = "muon",
    lr: float = 3e-4,
    matrix_lr: float = 0.02,
    momentum: float = 0.95,
    betas: tuple[float, float] | None = None,
    eps: float | None = None,
    weight_decay: float = 0.0,
    muon: type[Muon] = Muon,
) -> Optimizers:
    """`lr` is for Adam, `matrix_lr` and `momentum` for Muon. `betas` and `eps` default to those of the kind."""
    if kind not in BETAS:
        raise ConfigError(f"optimizer: {kind!r} is not one of {', '.join(BETAS)}")
    parameters = dict(model.named_parameters())
    members: dict[Role, Named] = {role: [] for role in ROLES}
    for name, role in roles(model).items():
        members[role].append((name, parameters[name]))
    if not any(members.values()):
        raise ConfigError("nothing to train: every parameter is frozen")
    parts: dict[str, Optimizer] = {}
    if kind == "muon" and (matrices := members["matrix"]):
        group = {"params": matrices, "name": "matrix"}
        parts["muon"] = muon([group], lr=matrix_lr, momentum=momentum, weight_decay=weight_decay)
        members["matrix"] = []
    groups = [
        {
            "params": members[role],
            "name": role,
            "weight_decay": 0.0 if role == "plain" or kind == "adam" else weight_decay,
        }
        for role in ROLES
        if members[role]
    ]
    if groups:
        options = {"lr": lr, "betas": betas or BETAS[kind], "eps": eps or EPS[kind]}
        parts["adam" if kind == "adam" else "adamw"] = _adam(Adam if kind == "adam" else AdamW, groups, **options)
    return Optimizers(parts)


def _adam(make: type[Adam] | type[AdamW], groups: list[dict[str, Any]], **options: Any) -> Optimizer:
    """Use the fused kernel where the device has one: a loop over parameters is many times slower on a CPU."""
    parameters = [parameter for group in groups for _, parameter in group["params"]]
    fused = all(parameter.device.type in FUSED and parameter.is_floating_point() for parameter in parameters)
    return make(groups, **options, fused=fused or None)
