"""BERT and its variants beyond the parity checks: pooled vectors, places of dropout, old files, padding ids."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from parity.cases import BERT, DISTILBERT, VIT
from safetensors.torch import load_file, save_file
from torch import Tensor

import headway
from headway.bundle import Bundle
from headway.errors import CheckpointError, ConfigError
from headway.families import find
from headway.families.family import Keys
from headway.layers import attend, attention, block, embeddings, feedforward
from headway.models import heads, stack
from headway.models.build import build

transformers = pytest.importorskip("transformers", reason="the reference library is a test-only dependency")

IDS = torch.tensor([[7, 8, 9, 10, 11], [12, 13, 14, 15, 16]])


def reference(name: str, folder: Path, **config: Any) -> Any:
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    model = kind(kind.config_class(**config, attn_implementation="eager")).eval()
    model.save_pretrained(folder)
    return model


def rewrite(folder: Path, change: Any) -> None:
    """Passes the folder's tensors through `change`."""
    file = folder / "model.safetensors"
    save_file({name: tensor.clone() for name, tensor in change(load_file(file)).items()}, file)


# ---------------------------------------------------------------------------------------- outputs beside the logits


@pytest.mark.parametrize("name", ["BertModel", "RobertaModel"])
def test_pooled_vector_is_the_reference_s(name: str, tmp_path: Path) -> None:
    theirs = reference(name, tmp_path, **BERT)
    with torch.no_grad():
        pooled = headway.load(tmp_path).model(IDS).pooled
        assert torch.allclose(pooled, theirs(IDS).pooler_output, atol=1e-5)


def test_pooled_image_is_the_reference_s(tmp_path: Path) -> None:
    theirs = reference("ViTModel", tmp_path, **VIT)
    images = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        assert torch.allclose(headway.load(tmp_path).model(images).pooled, theirs(images).pooler_output, atol=1e-5)


def test_pretraining_says_words_and_next_sentence(tmp_path: Path) -> None:
    theirs = reference("BertForPreTraining", tmp_path, **BERT)
    with torch.no_grad():
        ours, expected = headway.load(tmp_path).model(IDS), theirs(IDS)
    assert torch.allclose(ours.logits, expected.prediction_logits, atol=1e-5)
    assert torch.allclose(ours.next_sentence, expected.seq_relationship_logits, atol=1e-5)


# ---------------------------------------------------------------------------------------- dropout

DROPOUT = [
    ("BertForMaskedLM", BERT | {"hidden_dropout_prob": 0.3}),
    ("BertForSequenceClassification", BERT | {"hidden_dropout_prob": 0.3, "classifier_dropout": 0.5}),
    ("BertForTokenClassification", BERT | {"hidden_dropout_prob": 0.3, "classifier_dropout": 0.5}),
    ("RobertaForSequenceClassification", BERT | {"hidden_dropout_prob": 0.3, "classifier_dropout": 0.5}),
    ("DistilBertForMaskedLM", DISTILBERT | {"dropout": 0.3}),
    ("DistilBertForSequenceClassification", DISTILBERT | {"dropout": 0.3, "seq_classif_dropout": 0.5}),
    ("DistilBertForQuestionAnswering", DISTILBERT | {"dropout": 0.3, "qa_dropout": 0.5}),
    ("DistilBertForTokenClassification", DISTILBERT | {"dropout": 0.3}),
    ("ViTForImageClassification", VIT | {"hidden_dropout_prob": 0.3}),
]


@pytest.mark.parametrize(("name", "config"), DROPOUT, ids=[name for name, _ in DROPOUT])
def test_dropout_falls_in_the_same_places(
    name: str, config: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same seed both draw the same masks, if they draw them at the same places in the same order (and by the
    same function: ours draws fewer numbers for a mask)."""
    for module in (attend, attention, block, embeddings, feedforward, heads, stack):
        monkeypatch.setattr(module, "drop", torch.nn.functional.dropout)
    theirs, ours = reference(name, tmp_path, **config).train(), headway.load(tmp_path).model.train()
    inputs = torch.randn(2, 3, 12, 12) if name.startswith("ViT") else IDS
    torch.manual_seed(3)
    expected = theirs(inputs)
    torch.manual_seed(3)
    got = ours(inputs).logits
    torch.manual_seed(4)
    other = ours(inputs).logits
    if "start_logits" in expected:
        expected = torch.stack([expected.start_logits, expected.end_logits], dim=-1)
    else:
        expected = expected.logits
    assert torch.allclose(got, expected, atol=1e-5)
    assert not torch.allclose(got, other, atol=1e-3)


# ---------------------------------------------------------------------------------------- old files


def old_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The first published BERT: gamma and beta, the vocabulary under both its names, both halves of pre-training."""
    out = {n.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): t
           for n, t in tensors.items()}  # fmt: skip
    assert len(set(out) - set(tensors)) == 16
    out["cls.predictions.decoder.weight"] = out["bert.embeddings.word_embeddings.weight"]
    out["cls.predictions.decoder.bias"] = out["cls.predictions.bias"]
    out["bert.embeddings.position_ids"] = torch.arange(64)[None]
    out["bert.pooler.dense.weight"], out["bert.pooler.dense.bias"] = torch.randn(48, 48), torch.randn(48)
    out["cls.seq_relationship.weight"], out["cls.seq_relationship.bias"] = torch.randn(2, 48), torch.randn(2)
    return out


def test_old_files_are_read_and_written_in_today_s_names(tmp_path: Path) -> None:
    theirs = reference("BertForMaskedLM", tmp_path, **BERT)
    names = set(load_file(tmp_path / "model.safetensors"))
    rewrite(tmp_path, old_names)
    ours = headway.load(tmp_path)
    with torch.no_grad():
        assert torch.allclose(ours.logits(input_ids=IDS), theirs(IDS).logits, atol=1e-5)
    assert set(load_file(ours.save(tmp_path / "again") / "model.safetensors")) == names


def test_a_tied_table_may_be_kept_under_its_second_name_only(tmp_path: Path) -> None:
    theirs = reference("RobertaForMaskedLM", tmp_path, **BERT)
    words, second = "roberta.embeddings.word_embeddings.weight", "lm_head.decoder.weight"
    rewrite(tmp_path, lambda tensors: {second if name == words else name: t for name, t in tensors.items()})
    with torch.no_grad():
        assert torch.allclose(headway.load(tmp_path).logits(input_ids=IDS), theirs(IDS).logits, atol=1e-5)


def test_an_untied_table_never_stands_in_for_the_embedding(tmp_path: Path) -> None:
    reference("DistilBertForMaskedLM", tmp_path, **DISTILBERT, tie_word_embeddings=False)
    words = "distilbert.embeddings.word_embeddings.weight"
    rewrite(tmp_path, lambda tensors: {name: t for name, t in tensors.items() if name != words})
    with pytest.raises(CheckpointError, match=words):
        headway.load(tmp_path)


@pytest.mark.parametrize("name", ["cls.predictions.decoder.weight", "cls.predictions.decoder.bias"])
def test_a_tied_copy_that_differs_is_refused(name: str, tmp_path: Path) -> None:
    reference("BertForMaskedLM", tmp_path, **BERT)
    rewrite(tmp_path, lambda tensors: {k: t + 1 if k == name else t for k, t in old_names(tensors).items()})
    with pytest.raises(CheckpointError, match=f"{name} should be tied"):
        headway.load(tmp_path)


def test_an_unused_second_bias_is_no_fault(tmp_path: Path) -> None:
    """The reference library's untied head holds two biases and uses one."""
    theirs = reference("BertForMaskedLM", tmp_path, **BERT, tie_word_embeddings=False)
    rewrite(tmp_path, lambda tensors: tensors | {"cls.predictions.decoder.bias": torch.linspace(-1, 1, 99)})
    theirs.cls.predictions.decoder.bias.data = torch.linspace(-1, 1, 99)
    with torch.no_grad():
        assert torch.allclose(headway.load(tmp_path).logits(input_ids=IDS), theirs(IDS).logits, atol=1e-5)


# ---------------------------------------------------------------------------------------- padding given by its id


def test_roberta_tells_padding_by_its_id_even_without_a_mask(tmp_path: Path) -> None:
    theirs = reference("RobertaModel", tmp_path, **BERT)
    ids = torch.tensor([[1, 1, 7, 8, 9], [7, 1, 8, 9, 1]])
    config = json.loads((tmp_path / "config.json").read_text())
    del config["pad_token_id"]  # then it is the published 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    ours = headway.load(tmp_path)
    with torch.no_grad():
        expected = theirs(ids).last_hidden_state
    assert torch.allclose(ours.logits(input_ids=ids), expected, atol=1e-5)
    counted = ours.logits(input_ids=ids, position_ids=torch.arange(5)[None])
    assert not torch.allclose(counted, expected, atol=1e-3)


def test_padding_ids_that_leave_no_position_are_refused() -> None:
    data = {**BERT, "model_type": "roberta"}
    for pad in (-1, 64):
        with pytest.raises(ConfigError, match=r"pad_token_id|positions\.count"):
            build(find("roberta").read(Keys({**data, "pad_token_id": pad}), "RobertaModel"), device="meta")


@pytest.mark.parametrize("labels", [2, 3])
def test_labels_and_answers_are_told_apart_in_writing(labels: int, tmp_path: Path) -> None:
    """Two labels a token and the two ends of an answer are the same shape under different names."""
    for name, head in (("BertForTokenClassification", "classifier"), ("BertForQuestionAnswering", "qa_outputs")):
        kind = find("bert")
        config = kind.read(Keys({**BERT, "num_labels": labels}), name)
        folder = Bundle(build(config), "bert").save(tmp_path / name)
        assert json.loads((folder / "config.json").read_text())["architectures"] == [name]
        assert f"{head}.weight" in load_file(folder / "model.safetensors")
