import copy

import pytest
import torch
from torch import Tensor, nn

from headway.errors import CheckpointError, ConfigError
from headway.training import optim
from headway.training.muon import Muon
from headway.training.optim import Optimizers, build_optimizers, roles


class Toy(nn.Module):
    """One of everything a split has to tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(11, 8)
        self.places = nn.Parameter(torch.zeros(5, 8))
        self.patches = nn.Conv1d(8, 8, 3, padding=1)
        self.recurrent = nn.GRU(8, 8, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.hidden = nn.Linear(8, 8)
        self.shared = self.hidden
        self.tied = nn.Linear(8, 11, bias=False)
        self.tied.weight = self.tokens.weight
        self.classes = nn.Linear(8, 3)
        self.classes.is_head = True  # type: ignore[assignment]
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places
        x = self.patches(x.transpose(1, 2)).transpose(1, 2)
        x = self.frozen(self.shared(self.hidden(self.norm(self.recurrent(x)[0]))))
        return self.classes(x).sum() + self.tied(x).square().mean()


EXPECTED = {
    "tokens.weight": "plain",
    "places": "plain",
    "patches.weight": "weight",
    "patches.bias": "plain",
    "recurrent.weight_ih_l0": "matrix",
    "recurrent.weight_hh_l0": "matrix",
    "recurrent.bias_ih_l0": "plain",
    "recurrent.bias_hh_l0": "plain",
    "norm.weight": "plain",
    "norm.bias": "plain",
    "hidden.weight": "matrix",
    "hidden.bias": "plain",
    "classes.weight": "weight",
    "classes.bias": "plain",
}


def learn(model: nn.Module, optimizers: Optimizers, steps: range) -> None:
    for step in steps:
        ids = torch.randint(11, (2, 5), generator=torch.Generator().manual_seed(step))
        model(ids).backward()
        optimizers.scale_lr(1 / (1 + step))
        optimizers.step()
        optimizers.zero_grad()


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_every_parameter_has_its_role() -> None:
    assert roles(Toy()) == EXPECTED


@pytest.mark.parametrize("kind", ["muon", "adamw", "adam"])
def test_every_learnt_parameter_is_in_exactly_one_group(kind: optim.Kind) -> None:
    model = Toy()
    optimizers = build_optimizers(model, kind=kind, weight_decay=0.1)
    held = [
        parameter for part in optimizers.parts.values() for group in part.param_groups for parameter in group["params"]
    ]
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert sorted(map(id, held)) == sorted(map(id, learnt))
    assert sum(group.parameters for group in optimizers.groups) == sum(parameter.numel() for parameter in learnt)


def test_only_hidden_matrices_meet_muon_and_only_weights_decay() -> None:
    optimizers = build_optimizers(Toy(), kind="muon", lr=0.001, matrix_lr=0.03, weight_decay=0.1)
    found = {group.name: (group.lr, group.weight_decay) for group in optimizers.groups}
    assert found == {"muon.matrix": (0.03, 0.1), "adamw.weight": (0.001, 0.1), "adamw.plain": (0.001, 0.0)}
    names = [name for group in optimizers.parts["muon"].param_groups for name in group["param_names"]]
    assert set(names) == {name for name, role in EXPECTED.items() if role == "matrix"}
    assert isinstance(optimizers.parts["muon"], Muon)


def test_adam_is_the_one_of_the_paper() -> None:
    optimizers = build_optimizers(Toy(), kind="adam", weight_decay=0.1)
    (adam,) = optimizers.parts.values()
    assert isinstance(adam, torch.optim.Adam) and not isinstance(adam, torch.optim.AdamW)
    for group in adam.param_groups:
        assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0.0)


@pytest.mark.parametrize(("kind", "theirs"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
def test_updates_are_those_of_torch(kind: optim.Kind, theirs: type[torch.optim.Adam]) -> None:
    ours = Toy()
    reference = copy.deepcopy(ours)
    optimizers = build_optimizers(ours, kind=kind, lr=0.01, weight_decay=0.1)
    (part,) = optimizers.parts.values()
    decay = {name: group["weight_decay"] for group in part.param_groups for name in group["param_names"]}
    groups = [
        {"params": [parameter], "weight_decay": decay[name]}
        for name, parameter in reference.named_parameters()
        if parameter.requires_grad
    ]
    adam = theirs(groups, lr=0.01, betas=optim.BETAS[kind], eps=optim.EPS[kind], fused=True)
    for step in range(3):
        for model, optimizer in ((ours, optimizers), (reference, adam)):
            model(torch.arange(10).reshape(2, 5) + step % 2).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert all(map(torch.equal, ours.parameters(), reference.parameters()))
    assert not torch.equal(ours.norm.weight, torch.ones(8))  # control: there was an update


def test_the_schedule_scales_the_base_and_not_what_it_left() -> None:
    optimizers = build_optimizers(Toy(), lr=0.5, matrix_lr=0.25)
    for factor in (0.5, 0.5, 1.0, 0.1):
        optimizers.scale_lr(factor)
        assert [group.lr for group in optimizers.groups] == pytest.approx([0.25 * factor, 0.5 * factor, 0.5 * factor])


def test_fused_and_plain_adamw_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    fused = Toy()
    plain = copy.deepcopy(fused)
    fast = build_optimizers(fused, kind="adamw", lr=0.01, weight_decay=0.1)
    monkeypatch.setattr(optim, "FUSED", ())
    slow = build_optimizers(plain, kind="adamw", lr=0.01, weight_decay=0.1)
    assert fast.parts["adamw"].defaults["fused"] and not slow.parts["adamw"].defaults.get("fused")
    learn(fused, fast, range(10))
    learn(plain, slow, range(10))
    for a, b in zip(fused.parameters(), plain.parameters(), strict=True):
        assert torch.allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("kind", ["muon", "adamw", "adam"])
def test_a_loaded_state_goes_on_bit_for_bit(kind: optim.Kind) -> None:
    straight = Toy()
    optimizers = build_optimizers(straight, kind=kind, lr=0.01, weight_decay=0.1)
    learn(straight, optimizers, range(3))
    state = copy.deepcopy(optimizers.state_dict())
    resumed, forgetful = copy.deepcopy(straight), copy.deepcopy(straight)
    learn(straight, optimizers, range(3, 6))

    again = build_optimizers(resumed, kind=kind, lr=0.01, weight_decay=0.1)
    again.load_state_dict(state)
    learn(resumed, again, range(3, 6))
    assert same(straight, resumed)

    learn(forgetful, build_optimizers(forgetful, kind=kind, lr=0.01, weight_decay=0.1), range(3, 6))
    assert not same(straight, forgetful)


def test_a_state_of_another_kind_or_model_is_refused() -> None:
    state = build_optimizers(Toy(), kind="muon").state_dict()
    with pytest.raises(CheckpointError, match="adamw, muon"):
        build_optimizers(Toy(), kind="adam").load_state_dict(state)
    other = Toy()
    other.hidden.bias.requires_grad_(False)
    with pytest.raises(CheckpointError, match=r"hidden\.bias"):
        build_optimizers(other, kind="muon").load_state_dict(state)


def test_a_model_without_matrices_or_without_anything_else() -> None:
    assert set(build_optimizers(nn.LayerNorm(4)).parts) == {"adamw"}
    assert set(build_optimizers(nn.Linear(4, 4, bias=False)).parts) == {"muon"}
    with pytest.raises(ConfigError, match="frozen"):
        build_optimizers(nn.Linear(4, 4).requires_grad_(False))
    with pytest.raises(ConfigError, match="muon, adamw, adam"):
        build_optimizers(nn.Linear(4, 4), kind="sgd")  # type: ignore[arg-type]
