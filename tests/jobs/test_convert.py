"""Converted folders: the numbers of converting at load, opened by the reference library, with a truthful report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity.cases import YOLOS, detr
from support.parity import Case, inputs_for, make_pair, reference_logits
from support.writers import GPT2, LLAMA, MARIAN, T5

import headway
from headway import jobs
from headway.checkpoints import TensorFiles
from headway.errors import CheckpointError, ConfigError, InputError
from headway.jobs.convert import compare, convert

BERT = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 60,
        "max_position_embeddings": 64}  # fmt: skip
NAMES = {None: "int8", 0: "int8, one scale per row", 16: "int8, groups of 16"}
VIT = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1, "intermediate_size": 64, "image_size": 8,
       "patch_size": 4}  # fmt: skip
CASES = [
    Case("LlamaForCausalLM", LLAMA),
    Case("LlamaForCausalLM", {**LLAMA, "tie_word_embeddings": True}, "tied"),
    Case("GPT2LMHeadModel", GPT2),  # its matrices lie the other way round, q, k and v in one
    Case("T5ForConditionalGeneration", T5),
    Case("MarianMTModel", MARIAN),
    Case("BertModel", BERT),
    Case("BertForSequenceClassification", {**BERT, "num_labels": 3}),
    Case("BertForMaskedLM", BERT),
    Case("RobertaForTokenClassification", {**BERT, "pad_token_id": 1}),
    Case("ViTForImageClassification", VIT),
    Case("YolosForObjectDetection", {**VIT, **YOLOS, "num_hidden_layers": 2}),
    Case("DetrForObjectDetection", detr()),
]


WHOLE = ("LlamaForCausalLM", "T5ForConditionalGeneration")  # converted in every way by `make test`; others in the first


def grid(name: str, *ways: Any) -> Any:
    """Every case in every way; what `make test` leaves out is slow."""
    params = [
        pytest.param(case, way, id=f"{case}-{way}", marks=[] if quick else pytest.mark.slow)
        for case in CASES
        for way in ways
        for quick in [way == ways[0] or str(case) in WHOLE]
    ]
    return pytest.mark.parametrize(("pair", name), params, indirect=["pair"], scope="module")


@pytest.fixture(scope="module")
def pair(request, tmp_path_factory):
    return make_pair(request.param, tmp_path_factory.mktemp("model"))


@grid("to", "bf16", "fp16", "fp32")
def test_the_reference_library_opens_what_was_converted(pair, to, tmp_path: Path):
    report = convert(pair.folder, tmp_path / "out", to=to)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[to]
    theirs = getattr(transformers, pair.case.model).from_pretrained(tmp_path / "out", dtype=dtype).eval()
    ours = headway.load(tmp_path / "out")
    assert ours.weights == to and {p.dtype for p in ours.model.parameters()} == {dtype}
    inputs = inputs_for(pair)
    plain = pair.ours.logits(**inputs)
    cast = {k: v.to(dtype) if v.is_floating_point() else v for k, v in inputs.items()}
    with torch.no_grad():
        reference = reference_logits(theirs(**cast)).float()
    rough = {"bf16": 0.15, "fp16": 0.03, "fp32": 1e-4}[to]
    assert (reference - plain).abs().max() < rough * plain.abs().max()
    assert (ours.logits(**cast).float() - plain).abs().max() < rough * plain.abs().max()
    assert report.largest < rough * 10
    if to == "fp32":
        assert report.largest == 0 and report.bytes_after == report.bytes_before
    else:
        assert report.bytes_after == report.bytes_before / 2 and report.largest > 0


@grid("group", None, 0, 16)
def test_int8_on_disk_is_int8_chosen_at_load(pair, group, tmp_path: Path):
    if pair.case.model.startswith("ViT") and group:
        pytest.skip("one way is enough")
    report = convert(pair.folder, tmp_path / "out", to="int8", group=group)
    saved, chosen = headway.load(tmp_path / "out"), headway.load(pair.folder, weights="int8", group=group)
    inputs = inputs_for(pair)
    assert torch.equal(saved.logits(**inputs), chosen.logits(**inputs))
    plain = pair.ours.logits(**inputs)
    error = (saved.logits(**inputs) - plain).abs().max()
    assert 0 < error < 0.1 * plain.abs().max()
    assert saved.weights == chosen.weights == report.after == NAMES[group]
    files = TensorFiles(tmp_path / "out")
    assert {files.info(name).dtype for name in files} == {"I8", "F32"}
    assert files.nbytes < 0.62 * TensorFiles(pair.folder).nbytes  # scales and vectors weigh much in so small a model
    assert json.loads((tmp_path / "out" / "certificate.json").read_text()) == report.to_dict()


@pytest.mark.parametrize("pair", CASES, ids=str, indirect=True, scope="module")
def test_int8_is_written_out_when_floats_are_wanted(pair, tmp_path: Path):
    convert(pair.folder, tmp_path / "int8", to="int8")
    report = convert(tmp_path / "int8", tmp_path / "fp32", to="fp32")
    assert report.before == "int8" and report.after == "fp32" and report.largest < 1e-3
    again = headway.load(tmp_path / "fp32")
    assert again.weights == "fp32" and "quantization_config" not in again.foreign
    torch.testing.assert_close(
        again.logits(**inputs_for(pair)), headway.load(tmp_path / "int8").logits(**inputs_for(pair)), atol=1e-3, rtol=0
    )


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return make_pair(CASES[0], tmp_path_factory.mktemp("llama"))


def test_the_report_shows_damage(llama):
    damaged = headway.load(llama.folder)
    with torch.no_grad():
        damaged.model.stack.blocks[0].feedforward.down.weight.mul_(-3)
    sound, broken = (compare(llama.ours, other) for other in (headway.load(llama.folder, weights="int8"), damaged))
    assert sound.agreement > 0.9 > broken.agreement
    assert broken.mean > 10 * sound.mean
    ratios = [abs(c.perplexity_after / c.perplexity_before - 1) for c in (sound, broken)]
    assert ratios[0] < 0.005 and ratios[1] > 3 * ratios[0]


def test_a_text_of_ones_own(tmp_path: Path):
    jobs.train(
        "generate", out=tmp_path / "run", steps=2, settings={"model.width": 32, "model.layers": 1, "task.vocab": 300}
    )
    (tmp_path / "mine.txt").write_text("a line of text\n" * 40)
    (tmp_path / "short.txt").write_text("\n")
    report = convert(tmp_path / "run", tmp_path / "out", to="int8", text=tmp_path / "mine.txt")
    assert "mine.txt" in report.measured_on
    assert report.perplexity_after == pytest.approx(report.perplexity_before, rel=0.02)
    assert headway.load(tmp_path / "out").task.name == "generate"
    with pytest.raises(InputError, match=r"short\.txt: too short"):
        convert(tmp_path / "run", tmp_path / "other", to="int8", text=tmp_path / "short.txt")
    with pytest.raises(InputError, match=r"none\.txt: no such"):
        convert(tmp_path / "run", tmp_path / "other", to="int8", text=tmp_path / "none.txt")
    assert not (tmp_path / "other").exists()


def test_a_recurrent_model_can_be_made_smaller_too(tmp_path: Path):
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text(
        "".join(f"{day} May {year}\t{year}-05-{day}\n" for day in range(10, 20) for year in range(1990, 1999))
    )
    settings = {"model.width": 32, "task.vocab": 300, "task.architecture": "bahdanau-gru"}
    jobs.train("translate", pairs, out=tmp_path / "run", steps=1, settings=settings)
    report = convert(tmp_path / "run", tmp_path / "out", to="bf16")
    assert report.agreement > 0.8 and report.perplexity_after is not None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"to": "int4"}, "choose one of int8, bf16"),
        ({"to": "bf16", "group": 16}, "group 16 is for int8"),
        ({"to": "int8", "group": 7}, "group 7 is no multiple of 16"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_written(llama, options, says, tmp_path: Path):
    with pytest.raises(ConfigError, match=says):
        convert(llama.folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_a_model_is_never_written_over(llama):
    with pytest.raises(ConfigError, match="already holds a model"):
        convert(llama.folder, llama.folder, to="bf16")


def test_integers_that_are_not_ours_are_refused(llama, tmp_path: Path):
    convert(llama.folder, tmp_path / "out", to="int8", group=0)
    with pytest.raises(ConfigError, match="one scale per row already"):
        headway.load(tmp_path / "out", weights="int8", group=16)
    assert headway.load(tmp_path / "out", weights="int8").weights == NAMES[0]
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "checksums.json").unlink()
    for said, says in (
        ({"quant_method": "gptq", "bits": 4}, "'gptq' is not supported"),
        ({**config["quantization_config"], "group_size": -1}, "null or a multiple of 16"),
        ({**config["quantization_config"], "bits": 4}, "expected bits 8"),
    ):
        (tmp_path / "out" / "config.json").write_text(json.dumps({**config, "quantization_config": said}))
        with pytest.raises(ConfigError, match=says):
            headway.load(tmp_path / "out")
    del config["quantization_config"]
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="scale"):
        headway.load(tmp_path / "out")


def test_training_goes_on_from_integers_in_floats(llama, tmp_path: Path):
    convert(llama.folder, tmp_path / "out", to="int8")
    bundle = headway.load(tmp_path / "out", dtype="float32")
    assert bundle.weights == "fp32" and replace(bundle.config) == llama.ours.config
    assert all(p.requires_grad for p in bundle.model.parameters())
