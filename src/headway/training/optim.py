"""Which parameter is learnt by which optimiser, and several optimisers handled as one.

Hidden weight matrices may go to Muon; embeddings, output heads, norms, biases and kernels of other ranks go to AdamW
(Loshchilov & Hutter 2019). Norms, biases and embeddings are never decayed. `adam` is the 2017 paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from headway.errors import CheckpointError, ConfigError
from headway.training.muon import Muon

Kind = Literal["muon", "adamw", "adam"]
Role = Literal["matrix", "weight", "plain"]  # hidden matrix; head or kernel; norm, bias, embedding
Named = list[tuple[str, nn.Parameter]]
ROLES: tuple[Role, ...] = ("matrix", "weight", "plain")
KEPT = {"muon": ("momentum",), **dict.fromkeys(("adamw", "adam"), ("step", "exp_avg", "exp_avg_sq"))}
BETAS = {"muon": (0.9, 0.95), "adamw": (0.9, 0.95), "adam": (0.9, 0.98)}
EPS = {"muon": 1e-8, "adamw": 1e-8, "adam": 1e-9}


@dataclass(frozen=True)
class Group:
    """One line for the log: what is learnt together, how fast, and how much of it there is."""

    name: str
    lr: float
    weight_decay: float
    parameters: int


class Optimizers:
    """Several optimisers, each over its own parameters, as one."""

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
        """Every learning rate becomes its base times the schedule's factor."""
        for group in self._param_groups():
            group["lr"] = group["base_lr"] * factor

    @property
    def groups(self) -> list[Group]:
        return [
            Group(
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
                "resume with the optimiser the run began with"
            )
        for name, part in self.parts.items():
            saved, ours = _learnt(state[name]["param_groups"]), _learnt(part.param_groups)
            if saved != ours:
                stray = sorted(set(saved) ^ set(ours)) or sorted(key for key in ours if ours[key] != saved[key])
                raise CheckpointError(
                    f"the saved {name} state belongs to other parameters, {stray[0]!r} for one; "
                    "resume with the model, frozen parts and adapters the run began with"
                )
        for name, part in self.parts.items():
            _fitting(name, state[name]["state"], [each for group in part.param_groups for each in group["params"]])
            saved_rates = [group["lr"] for group in state[name]["param_groups"]]
            groups = part.state_dict()["param_groups"]
            kept = [{**group, "lr": rate} for group, rate in zip(groups, saved_rates, strict=True)]
            part.load_state_dict({"state": state[name]["state"], "param_groups": kept})

    def _param_groups(self) -> list[dict[str, Any]]:
        return [group for part in self.parts.values() for group in part.param_groups]


def _learnt(param_groups: list[dict[str, Any]]) -> dict[str, tuple[str, int]]:
    """Which group and place each parameter has, since the state is kept by place."""
    return {name: (group["name"], place) for group in param_groups for place, name in enumerate(group["param_names"])}


def _fitting(name: str, state: Mapping[Any, Mapping[str, Tensor]], parameters: list[Tensor]) -> None:
    """Refuse what the optimiser could not step with."""
    places = dict(enumerate(parameters))
    for place, kept in state.items():
        shapes = {key: places[place].shape if key != "step" else () for key in KEPT[name]} if place in places else None
        if shapes is None or {key: tuple(tensor.shape) for key, tensor in kept.items()} != shapes:
            raise CheckpointError(
                f"the saved state of optimizer.{name}.state.{place} is not what {name} keeps of this parameter; "
                "resume with the model the run began with"
            )


def embedding_weights(model: nn.Module) -> set[Tensor]:
    """The weights of lookup tables, and so of every layer tied to one."""
    return {module.weight for module in model.modules() if isinstance(module, nn.Embedding | nn.EmbeddingBag)}


def roles(model: nn.Module) -> dict[str, Role]:
    """The role of every parameter that is to be learnt, by name.

    A head is a module with `is_head = True`, all that is inside it included; a tied output layer is an embedding.
    """
    embeddings = embedding_weights(model)
    heads = {
        parameter
        for module in model.modules()
        if getattr(module, "is_head", False)
        for parameter in module.parameters()
    }
    found: dict[str, Role] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        if parameter in embeddings or parameter.ndim < 2 or not name.rpartition(".")[2].startswith("weight"):
            found[name] = "plain"
        elif parameter in heads or parameter.ndim != 2:
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
    """`lr` is Adam's; `matrix_lr` and `momentum` are Muon's. Without `betas` and `eps` a kind takes its usual ones."""
    if kind not in BETAS:
        raise ConfigError(f"optimizer: {kind!r} is not one of {', '.join(BETAS)}")
    parameters = dict(model.named_parameters())
    members: dict[Role, Named] = {role: [] for role in ROLES}
    for name, role in roles(model).items():
        members[role].append((name, parameters[name]))
    if not any(members.values()):
        raise ConfigError("there is nothing to train: every parameter is frozen")
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
    """One fused kernel where the device has it: the plain loop over parameters is many times slower on a CPU."""
    try:
        return make([dict(group) for group in groups], **options, fused=True)
    except RuntimeError:  # torch says so at construction when a device or dtype has no fused kernel
        return make(groups, **options)
