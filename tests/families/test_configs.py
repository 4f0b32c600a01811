"""A foreign config is read strictly: what is unknown, refused, of a wrong type or an impossible size is named, before
anything is allocated; and nothing in it, or beside it, is ever executed."""

import importlib.util
import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

import headway
from headway import loading
from headway.bundle import Bundle
from headway.checkpoints.saved import CHECKSUMS
from headway.errors import ConfigError, HeadwayError
from headway.families import find
from headway.families.family import Keys
from headway.models.build import build

SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 8}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], **SIZES, "vocab_size": 11, "rms_norm_eps": 1e-6}
BERT = {"model_type": "bert", "architectures": ["BertForTokenClassification"], **SIZES, "vocab_size": 11,
        "layer_norm_eps": 1e-12, "type_vocab_size": 2, "max_position_embeddings": 16, "hidden_act": "gelu",
        "id2label": {"0": "no", "1": "yes"}, "hidden_dropout_prob": 0.1}  # fmt: skip
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 8, "n_head": 2, "n_layer": 1,
        "vocab_size": 11, "n_positions": 16}  # fmt: skip
MISTRAL = LLAMA | {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "num_key_value_heads": 2}
ROBERTA = BERT | {"model_type": "roberta", "architectures": ["RobertaForMaskedLM"], "pad_token_id": 1}
DISTILBERT = {"model_type": "distilbert", "architectures": ["DistilBertModel"], "dim": 8, "n_heads": 2, "n_layers": 1,
              "hidden_dim": 8, "vocab_size": 11, "max_position_embeddings": 16, "dropout": 0.1}  # fmt: skip
VIT = {"model_type": "vit", "architectures": ["ViTModel"], **SIZES, "image_size": 8, "patch_size": [4, 4],
       "num_channels": 1, "qkv_bias": True}  # fmt: skip
EVERY = [LLAMA, MISTRAL, GPT2, BERT, ROBERTA, DISTILBERT, VIT]

BAD: list[tuple[dict[str, Any], str, Any]] = [
    *((config, key, value) for config in (LLAMA, BERT) for key, value in [
        ("hidden_size", 0),
        ("hidden_size", -8),
        ("hidden_size", "8"),
        ("hidden_size", 8.0),
        ("hidden_size", True),
        ("hidden_size", [8]),
        ("hidden_size", 10**12),
        ("num_hidden_layers", 10**9),
        ("vocab_size", 10**12),
        ("hidden_act", "snake"),
        ("hidden_act", 3),
        ("tie_word_embeddings", "yes"),
        ("architectures", ["SomethingElse"]),
        ("model_type", "bertt"),
    ]),
    *((LLAMA, "rms_norm_eps", value) for value in (float("nan"), float("inf"), "small")),
    (LLAMA, "attention_bias", 1),
    (LLAMA, "rope_parameters", {"rope_type": "spiral"}),
    (LLAMA, "rope_parameters", {"rope_type": "yarn", "factor": "much"}),
    (LLAMA, "rope_parameters", "default"),
    (MISTRAL, "num_hidden_layers", 10**9),
    *((BERT, "layer_norm_eps", value) for value in (float("nan"), float("-inf"), "small")),
    (BERT, "position_embedding_type", "relative_key"),
    (BERT, "is_decoder", True),
    (BERT, "add_cross_attention", True),
    (BERT, "num_attention_heads", 3),
    (BERT, "id2label", ["no", "yes"]),
    (ROBERTA, "pad_token_id", -1),
    (DISTILBERT, "n_layers", 10**9),
    (DISTILBERT, "n_heads", 3),
    (VIT, "image_size", [8, 8, 8]),
    (VIT, "image_size", [8, "8"]),
    (VIT, "image_size", 2),
    (VIT, "image_size", 10**12),
    (VIT, "pooler_output_size", 16),
]  # fmt: skip


def make(folder: Path, config: dict[str, Any]) -> Path:
    """A model folder with weights that fit `config`."""
    kind = find(config["model_type"])
    ours = kind.read(Keys(config), config["architectures"][0])
    return Bundle(build(ours), kind.name, foreign=config).save(folder)


def change(folder: Path, **keys: Any) -> None:
    file = folder / "config.json"
    (folder / CHECKSUMS).unlink(missing_ok=True)  # a folder of another program's
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config["model_type"])
def test_the_untouched_config_is_read(config: dict[str, Any], tmp_path: Path) -> None:
    assert headway.load(make(tmp_path, config)).family == config["model_type"]


@pytest.mark.parametrize(("config", "key", "value"), BAD, ids=[f"{c['model_type']} {k} {v!r}" for c, k, v in BAD])
def test_a_bad_value_is_named_before_anything_is_built(
    config: dict[str, Any], key: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(make(tmp_path, config), **{key: value})
    monkeypatch.setattr(loading, "build", lambda *_, **__: pytest.fail("the model was built"))
    with pytest.raises(ConfigError) as error:
        headway.load(tmp_path)
    assert key.removesuffix("s") in str(error.value)


@pytest.mark.parametrize("config", EVERY, ids=lambda config: config["model_type"])
def test_no_value_of_any_key_escapes_as_another_error(config: dict[str, Any], tmp_path: Path) -> None:
    folder = make(tmp_path, config)
    original = (folder / "config.json").read_text()
    for key in json.loads(original):
        for value in (0, 10**15, float("nan"), True, "x", [], {"x": 1}):
            (folder / "config.json").write_text(original)
            change(folder, **{key: value})
            try:
                headway.load(folder)
            except HeadwayError as error:
                assert str(error), (key, value)


# ---------------------------------------------------------------------------------------- nothing is executed

CANARY = "from pathlib import Path\nPath(__file__).with_name('executed').touch()\nclass Model: ...\n"
AUTO_MAP = {
    "AutoConfig": "canary.Model",
    "AutoModel": "canary.Model",
    "AutoModelForCausalLM": "other/repo--canary.Model",
}


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        pytest.fail("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("config", [LLAMA, BERT], ids=lambda config: config["model_type"])
@pytest.mark.parametrize("keys", [
    {"auto_map": AUTO_MAP},
    {"auto_map": AUTO_MAP, "trust_remote_code": True},
    {"model_type": "canary", "auto_map": AUTO_MAP},
    {"model_type": "../canary", "architectures": ["canary.Model"]},
    {"architectures": ["canary.Model"]},
    {"auto_map": AUTO_MAP, "custom_pipelines": {"x": {"impl": "canary.Model"}}},
    {"trust_remote_code": True},
    {"custom_pipelines": {"x": {"impl": "canary.Model"}}},
], ids=lambda keys: ", ".join(keys))  # fmt: skip
def test_code_that_a_config_names_is_never_run(config: dict[str, Any], keys: dict[str, Any], tmp_path: Path) -> None:
    folder = make(tmp_path, config)
    for name in ("canary.py", "__init__.py", "modeling_canary.py", "configuration_canary.py"):
        (folder / name).write_text(CANARY)
    before = set(sys.modules)
    change(folder, **keys)
    if set(keys) == {"auto_map"}:
        assert headway.load(folder).family == config["model_type"]
    elif not set(keys) & {"auto_map", "architectures"}:
        with pytest.warns(UserWarning, match=next(iter(keys))):
            assert headway.load(folder).family == config["model_type"]
    else:
        with pytest.raises(ConfigError):
            headway.load(folder)
    assert not (folder / "executed").exists()
    assert not [name for name in set(sys.modules) - before if "canary" in name]


def test_the_canary_detects_execution(tmp_path: Path) -> None:
    (tmp_path / "canary.py").write_text(CANARY)
    spec = importlib.util.spec_from_file_location("canary_control", tmp_path / "canary.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    assert (tmp_path / "executed").exists()


@pytest.mark.usefixtures("no_network")
def test_the_network_trap_works() -> None:
    with pytest.raises(pytest.fail.Exception, match="socket"):
        socket.create_connection(("localhost", 9), timeout=1)
