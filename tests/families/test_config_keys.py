"""What a config.json says that cannot change a number never stops a model; what can is read, or refused by name. The
rule: the keys of the reference library's config class are settings of the family, every other key is none."""

import dataclasses
import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from families.test_configs import BERT, GPT2, LLAMA, change, make
from support.commands import headway as command

import headway
from headway.errors import ConfigError
from headway.families import MODULES, find
from headway.families.dialect import architecture_of
from headway.families.family import BOOKKEEPING, Keys

REAL = json.loads((Path(__file__).parent / "real_configs.json").read_text(encoding="utf-8"))
REFUSED = {  # of the real ones, for a reason that holds
    "bert-ed60ce1b": "alibi_starting_size .* auto_map",  # another architecture, in code of its own
    "mistral-38d267b4": "finetuned .* auto_map",
    "detr-4fe2c944": "DetrForSegmentation",
    "mbart-c39dd2cf": "MBartForSequenceClassification",
    "gpt_neox-118bfcd2": "bitsandbytes",
    "qwen3-49464fbc": "quantization_config",
    "qwen3-f20fb5b7": "fp8",
}
NOTED = {"bert-0e833799": "uniem_embedding_strategy", "bert-de1087b0": "eos_token_ids", "bert-352cf62b": "emb_size",
         "roberta-f854ba75": "language", "xlm-roberta-4945ec2c": "adapters", "llama-fe81e4d4": "is_llama_config",
         "modernbert-938aa08e": "position_embedding_type"}  # fmt: skip
NO_CLASS = {"gpt-nano", "gliner", "gliner_uni_encoder_span", "headway"}  # unknown keys of these are refused


def read(config: dict[str, Any]) -> Keys:
    """As a folder with this config.json is opened."""
    from headway.engine.weights import weights_from_config
    from headway.generation.defaults import KEYS

    keys = Keys(config)
    keys.ignore("quantization_config", *KEYS)
    weights_from_config(config)
    kind = find(keys.get("model_type", str))
    kind.read(keys, architecture_of(keys, kind))
    keys.done()
    return keys


# ---------------------------------------------------------------------------------------- the rule


def unread(name: str, kind: type[Keys] = Keys) -> set[str]:
    """The settings of a family's class in the reference library, and its other names for them, that Headway neither
    reads nor knows to change nothing."""
    from transformers import AutoConfig

    config = AutoConfig.for_model(name)
    values = json.loads(config.to_json_string(use_diff=False))
    settings = {*values, *(each.name for each in dataclasses.fields(config)), *config.attribute_map}
    out = set[str]()
    for architecture in find(name).architectures:
        keys = kind(values)
        find(name).read(keys, architecture)
        out |= settings - keys.read - BOOKKEEPING
    return out


@pytest.mark.parametrize("name", [name for name in MODULES if name not in NO_CLASS])
def test_every_setting_of_the_reference_library_is_read(name: str) -> None:
    assert not unread(name)


class Careless(Keys):
    def ignore(self, *keys: str) -> None:
        pass

    def alias(self, **keys: str) -> None:
        pass


@pytest.mark.parametrize(("name", "key"), [("vit", "encoder_stride"), ("t5", "hidden_size")])
def test_a_setting_that_is_not_read_is_found(name: str, key: str) -> None:
    assert key in unread(name, Careless)


@pytest.mark.parametrize("name", sorted(NO_CLASS & set(MODULES)))
def test_without_a_class_to_compare_with_unknown_keys_are_refused(name: str) -> None:
    keys = Keys({"layers_of_mine": 3})
    with pytest.raises(ConfigError):
        find(name).read(keys, find(name).architectures[0])
    assert keys.strict


# ---------------------------------------------------------------------------------------- real files


@pytest.mark.parametrize("name", sorted(set(REAL) - set(REFUSED)))
def test_a_real_config_is_read(name: str) -> None:
    notes = "\n".join(read(REAL[name]).notes)
    assert NOTED.get(name, "") in notes


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_real_config_is_refused_for_its_reason(name: str) -> None:
    with pytest.raises(ConfigError, match=REFUSED[name]):
        read(REAL[name])


# ---------------------------------------------------------------------------------------- a folder


def test_an_unknown_key_is_noted_once_and_changes_no_number(tmp_path: Path) -> None:
    folder = make(tmp_path, BERT)
    ids = torch.tensor([[1, 2, 3]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = headway.load(folder).logits(input_ids=ids)
    change(folder, language="english", eos_token_ids=0, hidden_dropout=None, unk_token_id=1, **{"\x1b[2J": True})
    with pytest.warns(UserWarning) as noted:
        after = headway.load(folder).logits(input_ids=ids)
    assert torch.equal(before, after)
    (message,) = {str(note.message) for note in noted}
    assert all(key in message for key in ("language", "eos_token_ids", "unk_token_id"))
    assert "hidden_dropout" not in message, "null is no setting"
    assert "did you mean" not in message
    (line,) = command("info", folder, cwd=tmp_path).stderr.splitlines()
    assert line == f"warning: {message}"
    assert message.isprintable()


def test_a_misspelt_key_gets_a_suggestion(tmp_path: Path) -> None:
    folder = make(tmp_path, BERT)
    values = json.loads((folder / "config.json").read_text())
    values["layer_norm_epss"] = values.pop("layer_norm_eps")
    change(folder, **values)
    (folder / "config.json").write_text(json.dumps(values))
    with pytest.warns(UserWarning, match=r"layer_norm_epss \(did you mean 'layer_norm_eps'\?\)"):
        headway.load(folder)


def test_many_unknown_keys_make_a_short_note_at_once() -> None:
    keys = read(LLAMA | {f"hidden_size_{number}": number for number in range(50_000)})
    (note,) = keys.notes
    assert len(note) < 2000 and "and 49,980 more" in note


def test_model_code_of_its_own_may_read_any_key() -> None:
    code = {"auto_map": {"AutoModelForCausalLM": "modeling.Model"}}
    assert not read(LLAMA | code).notes
    with pytest.raises(ConfigError, match=r"qk_scale.*auto_map"):
        read(LLAMA | code | {"qk_scale": 2.0})
    assert read(LLAMA | {"qk_scale": 2.0, "auto_map": {"AutoTokenizer": "tokens.Mine"}}).notes


def test_another_name_of_a_key_repeats_it_or_stands_for_it() -> None:
    other = {key: value for key, value in GPT2.items() if key != "n_embd"}
    kind = find("gpt2")
    want = kind.read(Keys(GPT2), "GPT2LMHeadModel")
    assert kind.read(Keys(other | {"hidden_size": 8}), "GPT2LMHeadModel") == want
    assert kind.read(Keys(GPT2 | {"hidden_size": 8}), "GPT2LMHeadModel") == want
    with pytest.raises(ConfigError, match="hidden_size = 16 and n_embd = 8"):
        kind.read(Keys(GPT2 | {"hidden_size": 16}), "GPT2LMHeadModel")


def test_heads_that_were_cut_away_are_refused() -> None:
    read(BERT | {"pruned_heads": {}})
    with pytest.raises(ConfigError, match="pruned_heads"):
        read(BERT | {"pruned_heads": {"0": [1]}})
