"""Starting from a published model: the run's folder is one that the reference library opens, with the same numbers."""

from pathlib import Path

import pytest
import torch

import headway
from headway import jobs
from headway.preprocess.text import Tokenizer

transformers = pytest.importorskip("transformers")
TEXTS = [f"word{i % 17} and word{i % 5}" for i in range(200)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    rows = [f"{text}\t{'abc'[i % 3]}" for i, text in enumerate(TEXTS)]
    (tmp_path / "rows.tsv").write_text("\n".join(rows) + "\n")
    return tmp_path / "rows.tsv"


def published(kind: str, folder: Path) -> Path:
    tokenizer = Tokenizer.train(TEXTS, kind="wordpiece", size=120)
    tokenizer.save(folder)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    if kind == "DistilBertModel":
        shape = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 40}
    model = getattr(transformers, kind)
    torch.manual_seed(0)
    model(model.config_class(vocab_size=len(tokenizer), pad_token_id=tokenizer.pad_id, **shape)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["BertModel", "RobertaModel", "DistilBertModel"])
def test_classify_from_a_published_encoder(kind: str, data: Path, tmp_path: Path) -> None:
    start = published(kind, tmp_path / "start")
    trained = jobs.train("classify", data, start=start, out=tmp_path / "run", steps=3, settings={"eval_every": 0})
    again = headway.load(trained.folder)
    assert again.labels == ["a", "b", "c"] or again.family == "headway"
    assert again("word1 and word2") == trained.bundle("word1 and word2")
    if again.family == "headway":  # a head its family cannot say
        return
    reference = transformers.AutoModelForSequenceClassification.from_pretrained(trained.folder).eval()
    assert reference.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert again.processor.tokenizer is not None
    ids = torch.tensor([again.processor.tokenizer.encode("word1 and word2")])
    with torch.no_grad():
        torch.testing.assert_close(again.logits(input_ids=ids), reference(ids).logits, atol=1e-5, rtol=1e-4)


def test_bert_stays_bert(data: Path, tmp_path: Path) -> None:
    trained = jobs.train("classify", data, start=published("BertModel", tmp_path / "s"), out=tmp_path / "r", steps=1)
    assert headway.load(trained.folder).family == "bert"


def test_the_start_folder_is_left_as_it_was(data: Path, tmp_path: Path) -> None:
    start = published("BertModel", tmp_path / "start")
    before = {path.name: path.read_bytes() for path in start.iterdir()}
    jobs.train("classify", data, start=start, out=tmp_path / "run", steps=2)
    assert before == {path.name: path.read_bytes() for path in start.iterdir()}
