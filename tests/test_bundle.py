"""What is loaded, called and saved: types, shards, limits, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

import headway
from headway.bundle import Bundle
from headway.checkpoints import TensorFiles, save_tensors
from headway.errors import CheckpointError, ConfigError, InputError
from headway.models.build import build
from headway.models.config import TokenHeadConfig
from headway.models.recipes import Size, decoder, encoder
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer

SIZE = Size(width=32, layers=2, heads=2)
TEXTS = ["one short text", "and a second one, rather longer than the first", "three"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tokenizer = Tokenizer.train(TEXTS, kind="wordpiece", size=80)
    config = encoder(SIZE, "modern", vocab=len(tokenizer))
    return Bundle(build(config), "headway", Processor(tokenizer)).save(tmp_path / "model")


@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
def test_loaded_in_the_type_that_is_asked_for(folder: Path, name: str) -> None:
    bundle = headway.load(folder, dtype=name)
    assert {p.dtype for p in bundle.model.parameters()} == {getattr(torch, name)}
    plain = headway.load(folder)
    ids = torch.tensor([[5, 6, 7, 8]])
    difference = (bundle.logits(input_ids=ids).float() - plain.logits(input_ids=ids)).abs().max()
    assert difference == 0 if name == "float32" else difference < 0.1
    again = headway.load(bundle.save(folder.parent / name))
    assert {p.dtype for p in again.model.parameters()} == {getattr(torch, name)}


def test_an_unknown_type_is_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="float8"):
        headway.load(folder, dtype="float8")


def test_shards_load_like_one_file(folder: Path) -> None:
    whole = headway.load(folder)
    tensors = dict(TensorFiles(folder).items())
    for name in ("model.safetensors", "checksums.json"):
        (folder / name).unlink()
    save_tensors(folder, tensors, shard_bytes=20_000)
    assert len(list(folder.glob("*.safetensors"))) > 1
    sharded = headway.load(folder)
    for (name, a), (_, b) in zip(whole.model.named_parameters(), sharded.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_missing_or_extra_tensor_is_named(folder: Path) -> None:
    tensors = dict(TensorFiles(folder).items())
    gone = "stack.blocks.1.attention.query.weight"
    (folder / "checksums.json").unlink()
    save_tensors(folder, {name: tensor for name, tensor in tensors.items() if name != gone})
    with pytest.raises(CheckpointError, match=r"has no stack\.blocks\.1\.attention\.query\.weight"):
        headway.load(folder)
    save_tensors(folder, {**tensors, "surprise": torch.zeros(3)})
    with pytest.raises(CheckpointError, match="has surprise, which the model does not use"):
        headway.load(folder)
    save_tensors(folder, {**tensors, gone: torch.zeros(3, 3)})
    with pytest.raises(CheckpointError, match="shape"):
        headway.load(folder)


def test_embedding_keeps_the_order_and_is_the_same_alone(folder: Path) -> None:
    bundle = headway.load(folder)
    together = bundle.embed(TEXTS)
    for text, vector in zip(TEXTS, together, strict=True):
        torch.testing.assert_close(bundle.embed([text])[0], vector, atol=1e-5, rtol=1e-5)


def test_what_a_model_cannot_do_is_said(tmp_path: Path) -> None:
    config = decoder(SIZE, "modern", vocab=50, context=16)
    bundle = Bundle(build(config), "headway")
    with pytest.raises(InputError, match="encoder"):
        bundle.embed(["a"])
    with pytest.raises(InputError, match="no tokenizer: give the ids"):
        bundle("a")
    headless = replace(config, head=None)
    with pytest.raises(InputError, match="not trained for a task"):
        Bundle(build(headless), "headway")("a")
    with pytest.raises(InputError, match="input_ids"):
        bundle.logits()


def test_a_tokenizer_that_cannot_be_read_is_named_at_load_and_on_use(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder / "source.spm")
    with pytest.warns(UserWarning, match=r"loaded without a tokenizer: .*source\.spm alone is not enough"):
        bundle = headway.load(folder, verify=False)
    assert bundle.logits(input_ids=torch.tensor([[5, 6]])).shape[1] == 2  # ids need no tokenizer
    for use in (lambda: bundle("a text"), lambda: bundle.embed(["a text"])):
        with pytest.raises(InputError, match=r"source\.spm alone is not enough"):
            use()


def test_labels_are_those_of_the_answers(tmp_path: Path) -> None:
    """A published tagger that does not name its labels, one that does, and a model that has none."""
    tokenizer = Tokenizer.train(TEXTS, kind="wordpiece", size=80)
    config = replace(encoder(SIZE, "modern", vocab=len(tokenizer)), head=TokenHeadConfig(3))
    bundle = Bundle(build(config).eval(), "headway", Processor(tokenizer))
    assert bundle.labels == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert set(bundle("one short text")["tags"]) <= set(bundle.labels)
    named = Bundle(build(config).eval(), "headway", Processor(tokenizer))
    named.foreign = {"id2label": {"0": "O", "2": "PER", "1": "LOC"}}
    assert named.labels == ["O", "LOC", "PER"]
    with torch.no_grad():
        named.model.head.project.bias.copy_(torch.tensor([0.0, 0.0, 100.0]))
    assert [(e["type"], e["text"]) for e in named("one short text")["entities"]] == [("PER", "one short text")]
    language = encoder(SIZE, "modern", vocab=len(tokenizer))
    plain = Bundle(build(language), "headway", foreign={"id2label": {"0": "LABEL_0", "1": "LABEL_1"}})
    assert plain.labels == []
