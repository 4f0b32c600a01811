"""Adapters on disk: the layout of PEFT, names of the published model, refusal of what does not fit."""

import copy
import json
from pathlib import Path

import pytest
import torch
from parity.cases import CASES as PARITY
from safetensors.torch import load_file, save_file
from support.parity import inputs_for, make_pair, reference_logits
from torch import Tensor, nn
from training.test_lora import IDS, Toy, disturb

import headway
from headway.checkpoints.rules import AnyRule, fused, transposed
from headway.errors import CheckpointError, ConfigError
from headway.training.lora import add_lora, merge_lora
from headway.training.peft_files import open_lora, save_lora


def test_a_saved_adapter_is_in_the_layout_of_peft_and_is_read_back(tmp_path: Path) -> None:
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
    merge_lora(pristine)
    assert torch.allclose(pristine(IDS), model(IDS), atol=1e-5)


class Published(nn.Module):
    """Query, key and value in one transposed matrix, as GPT-2 has them."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.query(x) * self.key(x) + self.value(x))


RULES: list[AnyRule] = [
    fused(("query", "key", "value"), "h.attn.c_attn", transpose=True),
    transposed("out", "h.attn.c_proj"),
]


def test_fused_and_transposed_layers_have_the_published_names_and_deltas(tmp_path: Path) -> None:
    model = Published()
    pristine, before = copy.deepcopy(model), {name: value.clone() for name, value in model.named_parameters()}
    add_lora(model, rank=2, alpha=6, targets=["query", "key", "value", "out"])
    disturb(model)
    save_lora(model, tmp_path, rules=RULES)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    assert config["target_modules"] == ["h.attn.c_attn", "h.attn.c_proj"] and config["fan_in_fan_out"] is True
    assert config["rank_pattern"] == {"h.attn.c_attn": 6} and config["alpha_pattern"] == {"h.attn.c_attn": 18}
    x = torch.randn(3, 4)
    expected = model(x)
    open_lora(pristine, tmp_path, rules=RULES)
    assert torch.allclose(pristine(x), expected, atol=1e-6)
    merge_lora(model)
    # As PEFT computes it: W + (B @ A * alpha / r), transposed for `fan_in_fan_out`.
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    a, b = (tensors[f"base_model.model.h.attn.c_attn.lora_{part}.weight"] for part in "AB")
    delta = (b @ a * 18 / 6).t()
    theirs = torch.cat([model.query.weight, model.key.weight, model.value.weight]).t()
    was = torch.cat([before["query.weight"], before["key.weight"], before["value.weight"]]).t()
    assert torch.allclose(was + delta, theirs, atol=1e-6)


def test_part_of_a_fused_layer_cannot_be_saved(tmp_path: Path) -> None:
    model = Published()
    add_lora(model, rank=2, targets=["query"])
    with pytest.raises(CheckpointError, match=r"c_attn\.weight has the parts query\.weight, key\.weight"):
        save_lora(model, tmp_path, rules=RULES)
    with pytest.raises(ConfigError, match="no LoRA adapters"):
        save_lora(Published(), tmp_path)


def test_an_adapter_that_does_not_fit_is_refused_and_the_model_is_unchanged(tmp_path: Path) -> None:
    model = Toy()
    add_lora(model, rank=2, targets=["query"])
    save_lora(model, tmp_path)
    path = tmp_path / "adapter_model.safetensors"
    tensors = load_file(path)
    first = "base_model.model.blocks.0.attention.query.lora_"
    changes = {
        r"does not have 'elsewhere\.lora_A": {"base_model.model.elsewhere.lora_A.weight": torch.zeros(2, 8)},
        r"\(2, 9\) where the model has \(2, 8\)": {f"{first}A.weight": torch.zeros(2, 9)},
        r"\(7, 2\) where the model has \(8, 2\)": {f"{first}B.weight": torch.zeros(7, 2)},
        r"lora_B\.weight' is missing": {f"{first}B.weight": None},
        r"not of a linear layer": {"base_model.model.tokens.lora_A.weight": torch.zeros(2, 8)},
    }
    for message, change in changes.items():
        changed = {name: tensor for name, tensor in {**tensors, **change}.items() if tensor is not None}
        changed.setdefault("base_model.model.tokens.lora_B.weight", torch.zeros(11, 2))
        if "linear" not in message:
            del changed["base_model.model.tokens.lora_B.weight"]
        save_file(changed, path)
        other = Toy()
        with pytest.raises(CheckpointError, match=message):
            open_lora(other, tmp_path)
        assert all(parameter.requires_grad for parameter in other.parameters())
        assert not any("lora" in name for name, _ in other.named_parameters())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"use_dora": True}, "use_dora"),
        ({"rank_pattern": {"blocks.0.attention.query": 4}}, "says 4"),
        ({"rank_pattern": [4]}, "rank_pattern: expected an object"),
        ({"r": 10**9}, "says 1000000000"),
        ({"r": "2"}, "r: expected a whole number"),
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


def apply_as_peft(reference: nn.Module, folder: Path) -> None:
    """Add the adapters of a folder to a model of transformers, as PEFT's `merge_and_unload` does."""
    config = json.loads((folder / "adapter_config.json").read_text())
    tensors = load_file(folder / "adapter_model.safetensors")
    state = {name.removeprefix("base_model.model."): tensor for name, tensor in tensors.items()}
    with torch.no_grad():
        for target in config["target_modules"]:
            a, b = state.pop(f"{target}.lora_A.weight"), state.pop(f"{target}.lora_B.weight")
            rank = config["rank_pattern"].get(target, config["r"])
            assert a.shape[0] == b.shape[1] == rank
            delta = b @ a * (config["alpha_pattern"].get(target, config["lora_alpha"]) / rank)
            reference.get_submodule(target).weight.add_(delta.t() if config["fan_in_fan_out"] else delta)
        for name, tensor in state.items():
            assert any(name.startswith(f"{module}.") for module in config["modules_to_save"])
            reference.get_parameter(name).copy_(tensor)


CASES = {
    "GPT2LMHeadModel": "",  # tied, q, k and v in one transposed matrix
    "GPT2ForSequenceClassification": "",
    "LlamaForCausalLM": "multi-query, tied",
    "LlamaForSequenceClassification": "",
    "BertForMaskedLM": "",
    "BertForSequenceClassification": "",
    "T5ForConditionalGeneration": "",
    "BartForConditionalGeneration": "",
    "MarianMTModel": "",
    "ViTForImageClassification": "",
}
RENAMED = {"ViTForImageClassification"}  # transformers 5 has other module names in memory than in its files


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:loaded without a tokenizer")
def test_an_adapter_of_a_published_model_fits_it_in_both_libraries(name: str, tmp_path: Path) -> None:
    case = next(case for case in PARITY if case.model == name and CASES[name] in case.note)
    pair = make_pair(case, tmp_path / "base")
    inputs = inputs_for(pair)
    names = add_lora(pair.model, rank=2, alpha=4, train_heads=True)
    disturb(pair.model)
    save_lora(pair.model, tmp_path / "adapter", base=str(pair.folder), rules=headway.load(pair.folder).tensor_rules())
    expected = pair.ours.logits(**inputs)
    assert names and (expected - headway.load(pair.folder).logits(**inputs)).abs().max() > 0.1
    assert torch.allclose(headway.load(tmp_path / "adapter").logits(**inputs), expected, atol=1e-4)
    if name in RENAMED:
        return
    apply_as_peft(pair.reference, tmp_path / "adapter")
    with torch.no_grad():
        found = reference_logits(pair.reference(**inputs))
    assert torch.allclose(found, expected, atol=1e-4)


def test_an_adapter_without_its_model_is_refused(tmp_path: Path) -> None:
    model = Toy()
    add_lora(model, rank=2)
    save_lora(model, tmp_path)
    with pytest.raises(CheckpointError, match="base_model_name_or_path"):
        headway.load(tmp_path)
