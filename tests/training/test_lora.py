import copy
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.task_run import started
from torch import Tensor, nn

from headway import tasks
from headway.errors import CheckpointError, ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import Block, BlockConfig
from headway.layers.context import Context
from headway.layers.feedforward import FeedForwardConfig
from headway.training.lora import (
    LoRALinear,
    add_lora,
    count_trainable,
    freeze,
    load_lora,
    lora_state,
    merge_lora,
    open_lora,
    save_lora,
)
from headway.training.optim import embedding_weights, head_parameters


class Toy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        config = BlockConfig(8, AttentionConfig(heads=2, head_size=4), FeedForwardConfig(width=16))
        self.tokens = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList(Block(config) for _ in range(2))
        self.classes = nn.Linear(8, 3)
        self.tied = nn.Linear(8, 11, bias=False)
        self.tied.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, Context())
        return torch.cat([self.classes(x), self.tied(x)], dim=-1)


IDS = torch.arange(10).view(2, 5)


def disturb(model: nn.Module) -> None:
    """Change every trainable parameter, as training would."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn_like(parameter) * 0.3)


def test_an_adapted_model_initially_computes_the_same() -> None:
    model = Toy()
    before = model(IDS)
    names = add_lora(model, rank=2, alpha=4, dropout=0.5)
    assert len(names) == 2 * 6 and "blocks.0.attention.query" in names and "blocks.1.feedforward.down" in names
    assert torch.equal(model(IDS), before)
    disturb(model)
    assert not torch.equal(model(IDS), before)


def test_only_adapters_and_also_train_are_trainable() -> None:
    model = Toy()
    total = count_trainable(model).total
    add_lora(model, rank=2, targets=["query", "value"], also_train=["classes"])
    learnt = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    adapted = {
        f"blocks.{block}.attention.{layer}.lora_{side}.weight"
        for block in (0, 1)
        for layer in ("query", "value")
        for side in "AB"
    }
    assert learnt == adapted | {"classes.weight", "classes.bias"} == set(lora_state(model))
    counted = count_trainable(model)
    assert (counted.trainable, counted.total) == (4 * (2 * 8 + 8 * 2) + 27, total + 4 * (2 * 8 + 8 * 2))
    model(IDS).sum().backward()
    assert all((parameter.grad is not None) == (name in learnt) for name, parameter in model.named_parameters())


def test_merging_gives_plain_layers_with_the_same_outputs() -> None:
    model = Toy().eval()
    plain_names = set(model.state_dict())
    add_lora(model, rank=3, alpha=5, dropout=0.1)
    disturb(model)
    adapted = model(IDS)
    merge_lora(model)
    assert torch.allclose(model(IDS), adapted, atol=1e-5)
    assert set(model.state_dict()) == plain_names
    assert not any(isinstance(module, LoRALinear) for module in model.modules())
    assert count_trainable(model).trainable == count_trainable(model).total


def test_dropout_is_on_the_adapter_in_training_only() -> None:
    model = Toy()
    add_lora(model, rank=2, dropout=0.5)
    disturb(model)
    assert not torch.equal(model(IDS), model(IDS))
    model.eval()
    assert torch.equal(model(IDS), model(IDS))


def test_a_layer_used_twice_has_one_adapter_and_is_merged_once() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    add_lora(model, rank=1, targets=["0", "2"])
    assert model[0] is model[2] and isinstance(model[0], LoRALinear)
    disturb(model)
    x = torch.randn(3, 4)
    adapted = model(x)
    merge_lora(model)
    assert model[0] is model[2] is shared and torch.allclose(model(x), adapted, atol=1e-5)


def test_a_saved_adapter_is_in_the_layout_of_peft_and_comes_back(tmp_path: Path) -> None:
    model = Toy().eval()
    pristine = copy.deepcopy(model)
    add_lora(model, rank=2, alpha=6, targets=["*attention.*"], also_train=["classes"])
    disturb(model)
    save_lora(model, tmp_path, base="toy")
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (config["peft_type"], config["r"], config["lora_alpha"]) == ("LORA", 2, 6)
    assert config["modules_to_save"] == ["classes"] and "blocks.1.attention.key" in config["target_modules"]
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    assert tensors["base_model.model.blocks.0.attention.query.lora_A.weight"].shape == (2, 8)
    assert len(tensors) == 2 * 2 * 4 + 2

    assert not torch.equal(pristine(IDS), model(IDS))
    open_lora(pristine, tmp_path)
    assert torch.equal(pristine(IDS), model(IDS))


def test_an_adapter_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    model, other = Toy(), Toy()
    add_lora(model, rank=2, targets=["query"])
    add_lora(other, rank=2, targets=["query", "key"])
    with pytest.raises(CheckpointError, match=r"lacks 'blocks\.0\.attention\.key"):
        load_lora(other, lora_state(model))
    with pytest.raises(CheckpointError, match=r"the model does not have 'blocks\.0\.attention\.key"):
        load_lora(model, lora_state(other))
    wider = Toy()
    add_lora(wider, rank=3, targets=["query"])
    before = copy.deepcopy(wider.state_dict())
    with pytest.raises(CheckpointError, match=r"\(2, 8\) where the model has \(3, 8\)"):
        load_lora(wider, lora_state(model))
    assert all(torch.equal(value, before[name]) for name, value in wider.state_dict().items())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"use_dora": True}, "use_dora"),
        ({"rank_pattern": {"query": 4}}, "rank_pattern"),
        ({"r": 10**9}, "says 1000000000"),
        ({"r": "2"}, "r: expected a whole number"),
        ({"target_modules": ".*query"}, "list of names"),
    ],
)
def test_a_config_that_means_something_else_is_refused(tmp_path: Path, change: dict[str, object], named: str) -> None:
    model = Toy()
    add_lora(model, rank=2)
    save_lora(model, tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises((CheckpointError, ConfigError), match=named):
        open_lora(Toy(), tmp_path)


def test_a_pattern_that_matches_nothing_is_an_error_with_suggestions() -> None:
    with pytest.raises(ConfigError, match=r"'qeury'.*did you mean 'query'"):
        add_lora(Toy(), targets=["qeury"])
    with pytest.raises(ConfigError, match=r"there are: .*blocks\.\*\.attention\.query"):
        add_lora(Toy(), targets=["zzz"])
    with pytest.raises(ConfigError, match=r"no parameter matches 'block\.0'; did you mean 'blocks'"):
        freeze(Toy(), ["block.0"])
    with pytest.raises(ConfigError, match="tied"):
        add_lora(Toy(), targets=["tied"])
    with pytest.raises(ConfigError, match="no attention"):
        add_lora(nn.Sequential(nn.Linear(2, 2)))


def test_a_failed_call_leaves_the_model_as_it_was() -> None:
    model = Toy()
    names = set(model.state_dict())
    with pytest.raises(ConfigError):
        add_lora(model, targets=["query"], also_train=["nothing"])
    assert set(model.state_dict()) == names and count_trainable(model).trainable == count_trainable(model).total


def test_adapters_are_added_once() -> None:
    model = Toy()
    add_lora(model)
    with pytest.raises(ConfigError, match="merge"):
        add_lora(model)
    merge_lora(model)
    add_lora(model)


def test_freezing_reports_what_is_trainable() -> None:
    model = Toy()
    total = count_trainable(model).total
    report = freeze(model, ["tokens", "blocks.0"])
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if name.startswith(("tokens.", "blocks.0."))}
    expected = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    assert (report.trainable, report.total) == (expected, total) and expected < total
    assert f"{expected:,} of {total:,}" in str(report)


@pytest.mark.parametrize("name", sorted(tasks.TASKS))
def test_every_task_can_be_trained_with_adapters(name: str) -> None:
    """Tied heads have no parameters of their own; untied ones are trained beside the adapters."""
    task, model, data = started(name, rows=8)
    examples = [example for row in data.train() for example in task.examples(row)][:2]
    if task.stream:
        examples = [{"ids": example["ids"][:16]} for example in examples]
    batch = task.collate(examples, seeds=[(0, 0, i) for i in range(len(examples))], where=[""] * len(examples))
    before = task.loss(model, batch).total
    head = {id(parameter) for parameter in head_parameters(model) - embedding_weights(model)}
    assert add_lora(model, rank=2, train_heads=True)
    assert torch.allclose(task.loss(model, batch).total, before)
    trained = {id(parameter) for parameter in model.parameters() if parameter.requires_grad}
    adapters = {id(parameter) for name, parameter in model.named_parameters() if ".lora_" in name}
    assert trained == adapters | head
    disturb(model)
    adapted = task.loss(model, batch).total
    assert not torch.allclose(adapted, before)
    merge_lora(model)
    assert torch.allclose(task.loss(model, batch).total, adapted, rtol=1e-4)
