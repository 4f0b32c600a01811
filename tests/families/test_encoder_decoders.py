"""Published T5, BART and Marian files: older keys, copies of tied tensors, missing parts; and the variants that are
rejected by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import headway
from headway.bundle import Bundle
from headway.checkpoints.saved import CHECKSUMS
from headway.errors import CheckpointError, ConfigError
from headway.families import find
from headway.families.family import Keys
from headway.layers.positions import sinusoids
from headway.models.build import build
from headway.models.encoder_decoder import EncoderDecoder

T5 = {"d_model": 16, "d_kv": 6, "d_ff": 20, "num_heads": 2, "num_layers": 2, "vocab_size": 30}
BART = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 2, "vocab_size": 30, "max_position_embeddings": 20,
        "decoder_start_token_id": 2}  # fmt: skip
BART |= {
    f"{side}_{key}": value
    for side in ("encoder", "decoder")
    for key, value in [("attention_heads", 2), ("ffn_dim", 20)]
}
SOURCE, TARGET = torch.tensor([[5, 6, 7, 8]]), torch.tensor([[0, 9, 10]])


def bundle(name: str, data: dict[str, Any]) -> Bundle:
    """A random model of the family, as its config.json says."""
    family, keys = find(name), Keys(data)
    config = family.read(keys, family.architectures[0])
    keys.done()
    torch.manual_seed(0)
    return Bundle(build(config).eval(), name, foreign=dict(data))


def logits(opened: Bundle) -> torch.Tensor:
    return opened.logits(input_ids=SOURCE, decoder_input_ids=TARGET)


def edit(
    folder: Path, *, keys: dict[str, Any] | None = None, tensors: dict[str, torch.Tensor | None] | None = None
) -> None:
    """Changes a saved folder; None takes a key or a tensor out."""
    config = json.loads((folder / "config.json").read_text()) | (keys or {})
    (folder / CHECKSUMS).unlink(missing_ok=True)  # a folder of another program's
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    weights = {**load_file(folder / "model.safetensors"), **(tensors or {})}
    save_file({name: value for name, value in weights.items() if value is not None}, folder / "model.safetensors")


def head_of(opened: Bundle) -> Any:
    assert isinstance(opened.model, EncoderDecoder)
    return opened.model.decoder.head


def test_t5_with_copies_of_its_one_table(tmp_path: Path) -> None:
    """The first published files hold the table four times, and a bias that nothing uses; their configs no tie key."""
    model = bundle("t5", T5)
    expected, table = logits(model), model.model.encoder.embedding.tokens.weight.detach()
    model.save(tmp_path)
    copies = {name + ".weight": table.clone() for name in ("lm_head", "encoder.embed_tokens", "decoder.embed_tokens")}
    unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.randn(32, 2)}
    old = {"tie_word_embeddings": None, "scale_decoder_outputs": None, "n_positions": 512}
    edit(tmp_path, keys=old, tensors=copies | unused)
    opened = headway.load(tmp_path)
    assert head_of(opened).project is None and head_of(opened).scale == 0.25
    assert torch.equal(logits(opened), expected)
    edit(tmp_path, tensors={"lm_head.weight": table + 1})
    with pytest.raises(CheckpointError, match=r"lm_head\.weight should be tied to shared\.weight but differs"):
        headway.load(tmp_path)


def test_t5_v1_1_as_published(tmp_path: Path) -> None:
    """`tie_word_embeddings: false` with an lm_head of its own, and no scaling."""
    model = bundle("t5", T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False})
    assert head_of(model).project is not None and head_of(model).scale == 1.0
    model.save(tmp_path)
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["tie_word_embeddings"] is False and written["scale_decoder_outputs"] is False
    assert written["feed_forward_proj"] == "gated-gelu" and written["dense_act_fn"] == "gelu_new"
    derived = dict.fromkeys(("scale_decoder_outputs", "dense_act_fn", "is_gated_act"))
    edit(tmp_path, keys=derived)
    assert torch.equal(logits(headway.load(tmp_path)), logits(model))
    edit(tmp_path, keys={"tie_word_embeddings": True, "scale_decoder_outputs": False})  # as the reference rewrites it
    assert torch.equal(logits(headway.load(tmp_path)), logits(model))


def test_t5_drops_out_after_its_final_norm() -> None:
    model = bundle("t5", T5 | {"dropout_rate": 0.5})
    encoder = model.model.encoder
    outputs: list[torch.Tensor] = []
    encoder.stack.final.register_forward_hook(lambda _m, _i, value: outputs.append(value))
    got = encoder.train().encode(SOURCE)
    kept = got != 0
    assert 0.2 < kept.float().mean() < 0.8
    torch.testing.assert_close(got[kept], 2 * outputs[0][kept])


@pytest.mark.parametrize("name", ["bart", "mbart", "marian"])
def test_a_bias_of_the_logits_may_be_left_out(name: str, tmp_path: Path) -> None:
    model = bundle(name, BART)
    model.save(tmp_path)
    edit(tmp_path, tensors={"final_logits_bias": None})
    opened = headway.load(tmp_path)
    assert head_of(model).bias is not None and head_of(opened).bias is None
    torch.testing.assert_close(logits(opened), logits(model))  # a new model's is zero


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("bart", {"normalize_before": False, "add_final_layer_norm": False, "normalize_embedding": True}),
        ("mbart", {"normalize_before": True, "add_final_layer_norm": True, "normalize_embedding": True}),
        ("marian", {"normalize_before": False, "static_position_embeddings": True, "normalize_embedding": False}),
    ],
)
def test_older_flags_are_understood_and_their_opposites_refused(name: str, flags: dict[str, bool]) -> None:
    more = {"extra_pos_embeddings": 2, "add_bias_logits": False, "classif_dropout": 0.0, "num_hidden_layers": 1}
    plain = bundle(name, BART)
    assert bundle(name, BART | flags | more).config == plain.config
    for key, value in flags.items():
        with pytest.raises(ConfigError, match=f"{key} = {not value}"):
            bundle(name, BART | {key: not value})


def test_marian_positions_in_an_older_file_must_be_the_sinusoids(tmp_path: Path) -> None:
    model = bundle("marian", BART)
    model.save(tmp_path)
    table = sinusoids(20, 16, layout="halves")
    edit(tmp_path, tensors={f"model.{side}.embed_positions.weight": table.clone() for side in ("encoder", "decoder")})
    assert torch.equal(logits(headway.load(tmp_path)), logits(model))
    edit(tmp_path, tensors={"model.decoder.embed_positions.weight": sinusoids(20, 16)})
    with pytest.raises(CheckpointError, match=r"decoder\.embed_positions\.weight does not have the values"):
        headway.load(tmp_path)


def test_variants_that_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tie_word_embeddings = False is not supported"):
        bundle("bart", BART | {"tie_word_embeddings": False})
    with pytest.raises(ConfigError, match="needs share_encoder_decoder_embeddings = False"):
        bundle("marian", BART | {"tie_word_embeddings": False})
    with pytest.raises(ConfigError, match=r"feed_forward_proj|dense_act_fn"):
        bundle("t5", T5 | {"feed_forward_proj": "gated-mish"})
    with pytest.raises(ConfigError, match="encoder_attention_heads is 3: it does not divide the width, 16"):
        bundle("bart", BART | {"encoder_attention_heads": 3})
    bundle("bart", BART).save(tmp_path)
    edit(tmp_path, keys={"architectures": ["BartForSequenceClassification"]})
    with pytest.raises(ConfigError, match="BartForSequenceClassification"):
        headway.load(tmp_path)
