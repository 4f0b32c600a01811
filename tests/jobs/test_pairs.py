"""Pairs of texts from a file to an answer: train, evaluate, run, explain, info; a second text column is never dropped
without a word."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import headway
from headway import jobs
from headway.cli import app
from headway.errors import ConfigError, InputError
from headway.preprocess.text import Tokenizer

SMALL: dict[str, Any] = {"model.width": 32, "model.layers": 1, "model.heads": 2, "eval_every": 0, "vocab": 300}
ANIMALS = ("cat", "dog", "horse", "cow")
PAIRS = [
    (
        f"a {ANIMALS[i % 4]} is in the green garden of the house, number {i}",
        f"there is a {ANIMALS[(i // 4) % 4]} in it says witness {i}",
        "yn"[i % 4 != (i // 4) % 4],
    )
    for i in range(240)
]


def command(*words: str | Path) -> Any:
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pairs")
    lines = "".join(f'"{a}",{b},{label}\n' for a, b, label in PAIRS)
    (folder / "nli.csv").write_text("premise,hypothesis,label\n" + lines)
    (folder / "mine.csv").write_text("headline,story,label\n" + lines)
    return folder


@pytest.fixture(scope="module")
def run(data: Path) -> jobs.Trained:
    return jobs.train("classify", data / "nli.csv", out=data / "run", steps=2, settings=SMALL)


def test_a_run_on_pairs_is_saved_and_used(run: jobs.Trained, data: Path) -> None:
    loaded = headway.load(run.folder)
    first, second, _ = PAIRS[0]
    answer = loaded((first, second))
    assert loaded({"premise": first, "hypothesis": second}) == answer
    assert loaded([(first, second), (second, first)])[0]["scores"] == pytest.approx(answer["scores"], abs=1e-5)
    with pytest.raises(InputError, match="takes a pair of texts"):
        loaded(first)
    assert jobs.evaluate(run.folder)["majority"] > 0.5
    assert set(jobs.evaluate(run.folder, data / "mine.csv", columns={"text": ["headline", "story"]})) == set(run.scores)


def test_run_takes_objects_and_two_columns_of_a_file(run: jobs.Trained, data: Path) -> None:
    first, second, _ = PAIRS[1]
    given = json.dumps({"text": first, "text_pair": second})
    one = json.loads(command("run", run.folder, given, "--json").stdout)
    assert one["answer"]["label"] in ("y", "n")
    for words in (["nli.csv"], ["mine.csv", "--text", "headline", "--text", "story"]):
        result = command("run", run.folder, "--file", data / words[0], *words[1:], "--json")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert [line["input"] for line in lines] == [{"text": a, "text_pair": b} for a, b, _ in PAIRS]
        assert lines[1]["answer"]["scores"] == pytest.approx(one["answer"]["scores"], abs=1e-5)
    refused = command("run", run.folder, first)
    assert refused.exit_code != 0 and "takes a pair of texts" in str(refused.exception)


def test_check_names_both_parts_and_the_column_that_is_not_read(data: Path) -> None:
    lines = command("check", "classify", data / "nli.csv").stdout.splitlines()
    assert any("text = premise, text_pair = hypothesis, label = label" in line for line in lines)
    parts = [line.split()[0] for line in lines if line.startswith(" " * 13)]
    assert {"text", "text_pair", "pair"} <= set(parts)
    single = command("check", "classify", data / "mine.csv").stdout
    assert 'Column "story" holds texts too and is not used.' in single
    assert "For pairs of texts name both: --text headline --text story." in single
    both = command("check", "classify", data / "mine.csv", "--text", "headline", "--text", "story").stdout
    assert "is not used" not in both and "text = headline, text_pair = story" in both
    other = command("check", "generate", data / "mine.csv", "--text", "headline").stdout
    assert 'Column "story" holds texts too and is not used.' in other and "pairs" not in other


def test_training_names_the_column_that_is_not_read(data: Path, tmp_path: Path) -> None:
    said: list[str] = []
    jobs.train("classify", data / "mine.csv", out=tmp_path / "run", steps=1, settings=SMALL, say=said.append)
    assert any('Column "story" holds texts too' in line for line in said)
    assert 'Column "story" holds texts too' in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.parametrize(
    ("task", "columns", "says"),
    [
        ("fill", {"text": ["a", "b"]}, r'--text names 2 columns \("a", "b"\), but task fill reads one column for text'),
        ("classify", {"text": ["a", "b", "c"]}, "but task classify takes 2 texts"),
        ("classify", {"label": ["a", "b"]}, "--label names 2 columns .* reads one column for label"),
        ("classify", {"text": ["a", "a"]}, '--text names the column "a" twice'),
        ("embed", {"text": "a"}, "task embed reads two texts: name both columns"),
        ("translate", {"text": "a"}, "task translate has no field 'text'"),
    ],
)
def test_a_repeated_option_is_refused_where_it_has_no_place(task: str, columns: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        jobs.make_plan(task, "x.csv", columns=columns)
    words = [word for name, named in columns.items() for one in ([named] if isinstance(named, str) else named)
             for word in (f"--{name}", one)]  # fmt: skip
    assert command("check", task, "x.csv", *words).exit_code != 0


def test_embed_takes_two_text_columns(data: Path) -> None:
    plan = jobs.make_plan("embed", data / "mine.csv", columns={"text": ["headline", "story"]})
    assert plan.columns == {"a": "headline", "b": "story"}


def test_a_pair_is_explained(run: jobs.Trained) -> None:
    first, second, _ = PAIRS[2]
    found = headway.explain(run.folder, json.dumps([first, second])).story
    text = found.sequences["text"]
    assert text.text == f"{first}\n{second}" and [token.text for token in text.tokens].count("[SEP]") == 2
    assert found.title.startswith(first)
    answer = headway.load(run.folder)((first, second))
    assert found.output is not None and found.output.answer == answer["label"]
    assert "segment" in found.embedding[0].also
    short = headway.explain(run.folder, (first, second), first=2).story
    assert len(short.sequences["text"].tokens) == 7


def published(kind: str, folder: Path, **keys: Any) -> Path:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer.train([text for row in PAIRS for text in row[:2]], kind="wordpiece", size=200)
    tokenizer.save(folder)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 40}
    if kind.startswith("DistilBert"):
        sizes = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 40}
    torch.manual_seed(0)
    model = getattr(transformers, kind)
    keys = {"pad_token_id": tokenizer.pad_id, "max_position_embeddings": 64, "initializer_range": 0.3, **sizes, **keys}
    model(model.config_class(vocab_size=len(tokenizer), **keys)).save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "keys", "segments"),
    [("BertModel", {}, True), ("RobertaModel", {"type_vocab_size": 1}, False), ("DistilBertModel", {}, False)],
)
def test_pairs_start_from_a_published_encoder(kind: str, keys: Any, segments: bool, data: Path, tmp_path: Path) -> None:
    start = published(kind, tmp_path / "start", **keys)
    trained = jobs.train("classify", data / "nli.csv", start=start, out=tmp_path / "run", steps=2)
    again = headway.load(trained.folder)
    assert again.task is not None and (again.task.pair, again.task.segments) == (True, segments)  # type: ignore[attr-defined]
    found, wanted = (bundle(PAIRS[0][:2]) for bundle in (again, trained.bundle))
    assert found["label"] == wanted["label"] and found["scores"] == pytest.approx(wanted["scores"], abs=1e-6)


@pytest.mark.parametrize("kind", ["BertForSequenceClassification", "RobertaForSequenceClassification"])
def test_a_published_model_takes_texts_and_pairs_as_the_pipeline_does(kind: str, tmp_path: Path) -> None:
    folder = published(kind, tmp_path / "model", num_labels=3)
    transformers = pytest.importorskip("transformers")
    pipe = transformers.pipeline("text-classification", model=str(folder), top_k=None)
    ours = headway.load(folder)
    first, second, _ = PAIRS[3]
    for given, theirs in (((first, second), {"text": first, "text_pair": second}), (first, first)):
        expected = {row["label"]: row["score"] for row in pipe([theirs])[0]}
        assert ours(given)["scores"] == pytest.approx(expected, abs=1e-5)
    assert ours("{not a pair}")["label"].startswith("LABEL")
    assert [value for value, _ in jobs.run(ours, ["{not a pair}", json.dumps([first, second])])] == [
        "{not a pair}", (first, second)
    ]  # fmt: skip
