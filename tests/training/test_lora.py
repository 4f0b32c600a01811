import pytest
import torch
from support.task_run import started
from torch import Tensor, nn

from headway import tasks
from headway.errors import ConfigError
from headway.layers.attention import AttentionConfig
from headway.layers.block import Block, BlockConfig
from headway.layers.context import Context
from headway.layers.feedforward import FeedForwardConfig
from headway.training.lora import (
    LoRALinear,
    add_lora,
    count_trainable,
    freeze,
    merge_lora,
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
    assert learnt == adapted | {"classes.weight", "classes.bias"}
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


@pytest.mark.parametrize("name", sorted(set(tasks.TASKS) - {"vectors"}))  # word2vec has no layers to adapt
def test_every_task_can_be_trained_with_adapters(name: str) -> None:
    """Tied heads have no parameters of their own; untied ones are trained beside the adapters."""
    task, model, data = started(name, rows=8)
    examples = [example for row in data.train() for example in task.examples(row)][:2]
    if task.stream:
        examples = [{"ids": example["ids"][:16]} for example in examples]
    batch = task.collate(examples, seeds=[(0, 0, i) for i in range(len(examples))], where=[""] * len(examples))
    before = task.loss(model, batch).total
    head = {id(parameter) for parameter in head_parameters(model) - embedding_weights(model)}
    head = head if any(p.ndim > 1 for p in head_parameters(model) - embedding_weights(model)) else set()
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
