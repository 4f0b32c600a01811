"""The sentence embedding of a text is one vector, whether by bundle.embed, the embed task, `headway run` or explain."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

import headway
from headway import jobs
from headway.bundle import Bundle
from headway.cli import app
from headway.models.build import build
from headway.models.heads import pool
from headway.models.recipes import Size, encoder
from headway.preprocess.processor import Processor
from headway.preprocess.text import Tokenizer
from headway.tasks.embed import Embed

TEXT = "the cat sat on a red mat"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train([TEXT, "a blue sea and a grey sky"] * 5, kind="wordpiece", size=200)


def saved(folder: Path, tokenizer: Tokenizer, *, pooling: str, normalize: bool) -> Path:
    """A random encoder with sentence-transformers files."""
    config = encoder(Size(width=32, layers=2, heads=2, dropout=0.0), "classic", vocab=len(tokenizer))
    torch.manual_seed(0)
    Bundle(build(config).eval(), "headway", Processor(tokenizer)).save(folder)
    (folder / "checksums.json").unlink()  # of what is changed below
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), *([("Normalize", "2_Normalize")] if normalize else [])]
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in modules]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({f"pooling_mode_{pooling}": True}))
    return folder


def by_every_way(folder: Path) -> dict[str, Tensor]:
    bundle = headway.load(folder)
    ((_, answer),) = jobs.run(folder, [TEXT])
    printed = CliRunner().invoke(app, ["run", str(folder), TEXT, "--json"])
    assert printed.exit_code == 0, printed.output
    explained = headway.explain(folder, TEXT).story.output
    assert explained is not None and explained.vector is not None
    return {
        "bundle.embed": bundle.embed([TEXT])[0],
        "bundle.embed in a batch": bundle.embed(["a blue sea", TEXT])[1],
        "bundle": torch.tensor(bundle(TEXT)),
        "jobs.run": torch.tensor(answer),
        "headway run": torch.tensor(json.loads(printed.output)["answer"]),
        "headway explain": torch.from_numpy(explained.vector),
    }


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize(("pooling", "how"), [("cls_token", "first"), ("mean_tokens", "mean"), ("lasttoken", "last")])
def test_a_published_encoder(tmp_path: Path, tokenizer: Tokenizer, pooling: str, how: str, normalize: bool) -> None:
    folder = saved(tmp_path / "model", tokenizer, pooling=pooling, normalize=normalize)
    model = headway.load(folder).model
    with torch.no_grad():
        expected = pool(model(torch.tensor([tokenizer.encode(TEXT)])).hidden, None, how)[0]
    if normalize:
        expected = expected / expected.norm()
    for name, vector in by_every_way(folder).items():
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5, msg=name)


def test_an_encoder_without_such_files_is_pooled_by_the_mean(tmp_path: Path, tokenizer: Tokenizer) -> None:
    folder = saved(tmp_path / "model", tokenizer, pooling="cls_token", normalize=True)
    (folder / "modules.json").unlink()
    model = headway.load(folder).model
    with torch.no_grad():
        expected = model(torch.tensor([tokenizer.encode(TEXT)])).hidden.mean(1)[0]
    for name, vector in by_every_way(folder).items():
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-5, msg=name)


def test_an_encoder_trained_here_has_vectors_of_length_one(tmp_path: Path, tokenizer: Tokenizer) -> None:
    config = encoder(Size(width=32, layers=2, heads=2, dropout=0.0), "classic", vocab=len(tokenizer))
    task = Embed(tokenizer)
    folder = Bundle(build(config).eval(), "headway", Processor(tokenizer), task=task).save(tmp_path / "model")
    found = by_every_way(folder)
    torch.testing.assert_close(found["bundle"].norm(), torch.tensor(1.0))
    for name, vector in found.items():
        torch.testing.assert_close(vector, found["bundle"], atol=1e-5, rtol=1e-5, msg=name)
